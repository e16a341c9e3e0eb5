"""Signed cards: a signature for every key of the relay, and the keys themselves for who verifies.

Ed25519 is the relay's own key; ES256 stands beside it for clients that know nothing newer.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from a2a.types import AgentCard
from a2a.utils.signing import ProtectedHeader, create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm

from nodrop.protocol import canonical

JWKS_PATH: Final = "/.well-known/jwks.json"
PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey


class CardKeys:
    """What cards are signed with."""

    def __init__(self, keys: Sequence[PrivateKey]) -> None:
        self._keys = [(key, _public(key)) for key in keys]

    def sign(self, card: AgentCard, *, base: str) -> AgentCard:
        """Return the card with a signature of every key."""
        for key, public in self._keys:
            header = ProtectedHeader(
                alg=public["alg"], kid=public["kid"], typ="JOSE", jku=f"{base}{JWKS_PATH}"
            )
            # The SDK hands the key on to PyJWT, which takes these; its hint names others.
            create_agent_card_signer(key, header)(card)  # pyright: ignore[reportArgumentType]
        return card

    def jwks(self) -> bytes:
        """Return the public keys as a JWK set."""
        return msgspec.json.encode({"keys": [public for _, public in self._keys]})


def _public(key: PrivateKey) -> dict[str, Any]:
    """Return the public half as a JWK, named by its thumbprint (RFC 7638)."""
    if isinstance(key, Ed25519PrivateKey):
        jwk = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
        alg, named = "EdDSA", ("crv", "kty", "x")
    else:
        jwk = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        alg, named = "ES256", ("crv", "kty", "x", "y")
    thumbprint = canonical.sha256(canonical.dumps({name: jwk[name] for name in named}))
    return {**{name: jwk[name] for name in named}, "alg": alg, "use": "sig", "kid": thumbprint}
