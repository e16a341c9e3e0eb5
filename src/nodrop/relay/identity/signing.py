"""Signed requests: verified before they are decided, by a key of whoever sends them.

A signature is over the request as sent, for this team, by a current key of the caller, made within
minutes of now. Within that window a copy of it is the same command, because its command id is
signed too and remembered for days; outside of it, it is refused.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from nodrop.model.errors import SignatureInvalidError, SignatureRequiredError
from nodrop.protocol import canonical, requests
from nodrop.protocol.identity import keys, signatures
from nodrop.protocol.identity.signatures import Signed
from nodrop.relay.batch import Batch
from nodrop.relay.identity.keys import KIND, Key, KeyRing
from nodrop.relay.identity.policies import Policies
from nodrop.relay.identity.proved import Proved
from nodrop.relay.ports import Clock
from nodrop.relay.shows import Caller


class Signing:
    """Checks who said what."""

    def __init__(self, ring: KeyRing, policies: Policies, *, clock: Clock) -> None:
        self._ring = ring
        self.signed_only: Collection[str] = policies.signed_only
        """Teams whose offers and outcomes must be signed."""
        self._clock = clock

    def check(
        self, caller: Caller, operation: str, request: requests.Command, handoff_id: str | None
    ) -> Proved | None:
        """Return what a signed request proves; None where it is not signed, and need not be.

        Need not be called for a request without a signature, unless its team is one of `signed_only`.

        Raises:
            SignatureRequiredError: the team wants it signed.
            SignatureInvalidError: it does not hold.
        """
        signed: Any = getattr(request, "signature", None)
        if signed is None:
            if operation in signatures.SIGNABLE and caller.team in self.signed_only:
                raise SignatureRequiredError
            return None
        jws: Any = signed.jws if isinstance(signed, Signed) else None
        if not isinstance(jws, str) or len(jws) > keys.JWS_CHARS_MAX:
            raise SignatureInvalidError("expected a detached JWS")
        said = signatures.statement(
            operation, signed.sent, command_id=request.command_id, handoff_id=handoff_id
        )
        now = self._clock.now()
        key = self._ring.get(caller.team, keys.read_header(signed.jws).kid)
        if key is None or key.agent != caller.agent or not key.good(now):
            raise SignatureInvalidError(f"it names no current key of {caller.agent}")
        header = signatures.verify(signed.jws, said, self._ring.verifier(key), team=caller.team)
        signatures.check_window(header, now=now)
        return Proved(
            agent=key.agent,
            key_id=key.id,
            kept=signatures.kept(signed.jws, said),
            digest=canonical.sha256(signed.jws.encode()),
        )

    def recheck(self, batch: Batch, team: str, proved: Proved | None) -> None:
        """Refuse what was signed with a key that this very batch revokes."""
        if proved is None:
            return
        changed = batch.record(team, KIND, proved.key_id)
        key = (
            self._ring.get(team, proved.key_id)
            if changed is None
            else msgspec.json.decode(changed.json, type=Key)
        )
        if key is None or not key.good(batch.now):
            raise SignatureInvalidError(f"it names no current key of {proved.agent}")
