"""What the relay adds to what others signed, in its own name.

Whom it chose, the absolute times, legs and successors it opened: none of that is in a signed
request. The relay states it, signed with its own key, in the commit in which it does it: one
signature for all statements of a batch. `nodrop verify` checks that each stays within what the
requester signed.
"""

import functools
from collections import defaultdict
from typing import Any

import msgspec

from nodrop.model.handoff import Handoff
from nodrop.protocol import canonical
from nodrop.protocol.entries import Draft
from nodrop.protocol.identity.keys import PublicKey, unsigned
from nodrop.protocol.identity.signatures import STATEMENT
from nodrop.relay.batch import Batch
from nodrop.relay.ports import Signer

TYPE = "relay.stated.v1"


def state(batch: Batch, made: Handoff, *, signature: str | None, within: str | None) -> None:
    """Have the relay state what it made of a signed request.

    Args:
        batch: the batch in which the handoff was made.
        made: the handoff.
        signature: the digest of the requester's signature, where this is what it asked for itself.
        within: the handoff whose signed request this follows from, where it is not.
    """
    said: dict[str, Any] = {
        "handoff_id": made.id,
        "sender": made.sender,
        "recipient": made.recipient,
        "capability": made.capability,
        "manifest_version": made.manifest_version,
        "deadline_at": made.terms.deadline_at,
        "signature": signature,
        "within": within,
        "redrive_of": made.redrive_of,
    }
    kept = {name: value for name, value in said.items() if value is not None}
    batch.stated.append((made.team, kept))


class Statements:
    """Signs what a batch has the relay state."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    @functools.cached_property
    def _kid(self) -> str:
        return PublicKey(self._signer.public_key).id

    def sign(self, batch: Batch) -> None:
        """Write the statements of a batch, one entry for each team."""
        by_team: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for team, said in batch.stated:
            by_team[team].append(said)
        for team, said in by_team.items():
            payload = canonical.dumps({"team": team, "at": batch.now, "statements": said})
            signing_input = unsigned(STATEMENT, payload, kid=self._kid)
            jws = f"{signing_input}.{self._signer.sign(signing_input.encode())}"
            batch.write(
                Draft(
                    team=team,
                    at=batch.now,
                    type=TYPE,
                    actor="relay",
                    data=msgspec.Raw(canonical.dumps({"jws": jws})),
                )
            )
