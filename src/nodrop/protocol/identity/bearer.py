"""Bearer tokens that an agent signs itself: EdDSA JWTs (RFC 7519), good for minutes.

As strong as their lifetime: whoever sees one can use it until it expires. That is why they live at
most `LIFETIME_SECONDS_MAX`, and why what matters is signed by itself (`protocol.identity.signatures`).
"""

from typing import Final

import msgspec

from nodrop.model.errors import SignatureInvalidError
from nodrop.protocol.identity import keys
from nodrop.protocol.identity.keys import JWS_CHARS_MAX, PrivateKey, PublicKey

TYP: Final = "JWT"
AUDIENCE: Final = "nodrop"
LIFETIME_SECONDS_MAX: Final = 900
SKEW_SECONDS_MAX: Final = 60
"""How far an agent's clock may be ahead of the relay's."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What the token says. Claims besides these are passed over, as the RFC wants it."""

    iss: str
    """The agent."""
    sub: str
    """The team."""
    aud: str
    iat: int
    exp: int
    jti: str


_CLAIMS: Final = msgspec.json.Decoder(Claims)


def make(
    key: PrivateKey, *, agent: str, team: str, now: int, lifetime_seconds: int, jti: str
) -> str:
    """Return a token; `now` is in milliseconds."""
    claims = Claims(
        iss=agent,
        sub=team,
        aud=AUDIENCE,
        iat=now // 1000,
        exp=now // 1000 + lifetime_seconds,
        jti=jti,
    )
    return key.sign(TYP, msgspec.json.encode(claims))


def is_one(secret: str) -> bool:
    """Whether `secret` looks like a JWT rather than a token or an invitation."""
    return len(secret) <= JWS_CHARS_MAX and secret.startswith("ey") and secret.count(".") == 2  # noqa: PLR2004  # header, claims, signature


def peek(token: str) -> tuple[str, Claims]:
    """Return the key's id and the claims, which are not proved yet.

    Raises:
        SignatureInvalidError: it is no such token.
    """
    header = keys.read_header(token)
    if header.typ != TYP:
        raise SignatureInvalidError("it was signed for something else")
    try:
        return header.kid, _CLAIMS.decode(keys.decode(token.split(".")[1]))
    except (ValueError, msgspec.MsgspecError):
        raise SignatureInvalidError("its claims are not those of a bearer token") from None


def verify(token: str, claims: Claims, key: PublicKey, *, now: int) -> None:
    """Prove a token whose claims were read by `peek`; `now` is in milliseconds.

    Raises:
        SignatureInvalidError: why not.
    """
    seconds = now / 1000
    if claims.aud != AUDIENCE:
        raise SignatureInvalidError("it is for somebody else")
    if claims.iat > seconds + SKEW_SECONDS_MAX:
        raise SignatureInvalidError("it is from the future")
    if not 0 < claims.exp - claims.iat <= LIFETIME_SECONDS_MAX:
        raise SignatureInvalidError(f"it may live {LIFETIME_SECONDS_MAX} s at most")
    if claims.exp <= seconds:
        raise SignatureInvalidError("it has expired")
    key.verify(token)
