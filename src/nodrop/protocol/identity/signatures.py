"""What is signed of a request, and the proof that somebody holds a key.

A requester signs its offer and a recipient its outcome: a detached JWS over the canonical JSON
(RFC 8785) of the request as sent, without `signature`, `traceparent` and what says how to answer
(`brief`, `follow`, `quiet`), and with what the address says: `op`, and `handoff_id` where it is
about one. The header names the key, the team and the time. Who may sign what is decided by the
engine; here are only bytes.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nodrop.model.errors import SignatureInvalidError, SignatureStaleError
from nodrop.model.limits import MINUTE
from nodrop.protocol import canonical
from nodrop.protocol.identity import keys
from nodrop.protocol.identity.keys import Header, PrivateKey, PublicKey

REQUEST: Final = "nodrop-request"
PROOF: Final = "nodrop-proof"
STATEMENT: Final = "nodrop-statement"

SIGNABLE: Final = frozenset({"offer", "complete", "fail", "reject"})
"""The operations whose requests may be signed: what is asked, and how it ended."""
WINDOW_MS: Final = 5 * MINUTE
"""How far from the relay's time a request may have been signed."""

_NOT_SIGNED: Final = frozenset(
    {"signature", "traceparent", "id", "op", "handoff_id", "name", "command_id"}
    | {"brief", "follow", "quiet"}  # how it shall be answered
)
_LARGE: Final = {"offer": "payload", "complete": "result"}
"""The field that is kept beside a signature anyway, and not twice."""


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A signature as it came, which may be anything, and the fields it came with."""

    jws: Any
    sent: dict[str, Any]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept to verify a request later: with the large field put back, it is as sent."""

    jws: str
    request: msgspec.Raw


def as_sent(signature: Any, fields: Mapping[str, Any]) -> Signed:
    """Return the signature among `fields`, with those that it may be over."""
    return Signed(
        jws=signature,
        sent={name: value for name, value in fields.items() if name not in _NOT_SIGNED},
    )


def statement(
    operation: str, sent: Mapping[str, Any], *, command_id: str | None, handoff_id: str | None
) -> dict[str, Any]:
    """Return what is signed of a request.

    Raises:
        SignatureInvalidError: it has no command id, and could be repeated for ever.
    """
    if command_id is None:
        raise SignatureInvalidError("what is signed needs a command_id")
    said = {name: value for name, value in sent.items() if name not in _NOT_SIGNED}
    about = {} if handoff_id is None else {"handoff_id": handoff_id}
    return {**said, **about, "op": operation, "command_id": command_id}


def sign(said: Mapping[str, Any], key: PrivateKey, *, team: str, now: int) -> str:
    """Return the signature of a statement, made `now` (in milliseconds)."""
    return key.sign_detached(REQUEST, canonical.rfc8785(said), iat=now // 1000, sub=team)


def verify(jws: str, said: Mapping[str, Any], key: PublicKey, *, team: str) -> Header:
    """Return the header of a signature of `said`.

    Raises:
        SignatureInvalidError: it is none.
    """
    header = keys.read_header(jws)
    if header.typ != REQUEST or header.sub != team:
        raise SignatureInvalidError("it was signed for something else")
    try:
        payload = canonical.rfc8785(said)
    except ValueError as error:
        raise SignatureInvalidError(str(error)) from error
    key.verify(jws, payload)
    return header


def check_window(header: Header, *, now: int) -> None:
    """Refuse a signature that was not made just now.

    Raises:
        SignatureStaleError: it is older, or from the future.
    """
    if abs(header.iat * 1000 - now) > WINDOW_MS:
        raise SignatureStaleError


# --- what is kept --------------------------------------------------------------------------------


def kept(jws: str, said: Mapping[str, Any]) -> Kept:
    """Return what to keep of a signed request."""
    large = _LARGE.get(said["op"])
    small = {name: value for name, value in said.items() if name != large}
    # Whether it was there at all: null as sent is not the same as left out.
    there = {} if large is None or large not in said else {large: None}
    return Kept(jws=jws, request=msgspec.Raw(canonical.dumps(small | there)))


def restored(request: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement that was signed, from what was kept of it and the body around it."""
    large = _LARGE.get(request["op"])
    if large is None or large not in request:
        return dict(request)
    return {**request, large: body.get(large)}


# --- the proof that somebody holds a key ---------------------------------------------------------


def prove(key: PrivateKey, *, agent: str, nonce: str) -> str:
    """Return the proof that whoever asks holds `key`, for one use: the nonce's."""
    return key.sign(PROOF, _claim(key.public, agent, nonce))


def check_proof(proof: str, key: PublicKey, *, agent: str, nonce: str) -> None:
    """Refuse what does not prove that the caller holds `key`.

    Raises:
        SignatureInvalidError: it does not.
    """
    if len(proof) > keys.JWS_CHARS_MAX or keys.read_header(proof).typ != PROOF:
        raise SignatureInvalidError("it was signed for something else")
    if key.verify(proof) != _claim(key, agent, nonce):
        raise SignatureInvalidError("it proves something else")


def _claim(key: PublicKey, agent: str, nonce: str) -> bytes:
    return canonical.dumps({"agent": agent, "nonce": nonce, "public_key": key.text})
