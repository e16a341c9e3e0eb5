"""Ed25519 keys and what they sign: compact JWS (RFC 7515), one algorithm, nothing optional.

A key is known by its thumbprint (RFC 7638). What a signature is for is said by the header's `typ`,
so that one made for a purpose cannot pass for another. Files and rings of keys are elsewhere.
"""

import base64
import binascii
from typing import Any, Final, Self

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey
from joserfc.registry import HeaderParameter

from nodrop.model.errors import SignatureInvalidError

ALGORITHM: Final = "EdDSA"
_CURVE: Final = "Ed25519"
_KEY_BYTES: Final = 32
JWS_CHARS_MAX: Final = 4_096
"""Of a JWS without its payload, or of a bearer token: ours have a few hundred."""
PAYLOAD_BYTES_MAX: Final = 4_194_304
"""Of what is signed: a request as large as a relay takes, however it is spelled."""


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The protected header. Anything else in it is refused, `crit`, `jwk` and `b64` included."""

    alg: str
    kid: str
    typ: str
    iat: int = 0
    """When it was signed, in seconds since the epoch."""
    sub: str = ""
    """The team that it is for."""


class _Registry(jws.JWSRegistry):
    """The one algorithm. Its name in RFC 8037 is what other libraries know it by."""

    max_payload_length = PAYLOAD_BYTES_MAX

    def get_alg(self, name: str) -> Any:
        assert name == ALGORITHM, "the header was read before"
        return self.algorithms[name]


_REGISTRY: Final = _Registry(
    header_registry={
        "iat": HeaderParameter("When it was signed", "int"),
        "sub": HeaderParameter("The team", "str"),
    },
    algorithms=[ALGORITHM],
)
_HEADER: Final = msgspec.json.Decoder(Header)


class PublicKey:
    """What everybody may know of a key."""

    def __init__(self, public_key: str) -> None:
        """Read a key of 32 bytes in base64url.

        Raises:
            ValueError: it is none.
        """
        if len(decode(public_key)) != _KEY_BYTES:
            raise ValueError("expected the 32 bytes of an Ed25519 key in base64url")
        self.text = public_key
        self._key = OKPKey.import_key({"kty": "OKP", "crv": _CURVE, "x": public_key})
        self.id = self._key.thumbprint()

    def verify_bytes(self, signature: str, message: bytes) -> bool:
        """Whether this is the bare signature of `message`, in base64url."""
        public: Any = self._key.get_op_key("verify")
        try:
            public.verify(decode(signature), message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def verify(self, signature: str, payload: bytes | None = None) -> bytes:
        """Return what was signed: the payload inside, or the one that was detached.

        Raises:
            SignatureInvalidError: this key did not sign it.
        """
        header = read_header(signature)
        if header.kid != self.id:
            raise SignatureInvalidError("it names another key")
        if (payload is None) == (".." in signature):
            raise SignatureInvalidError("the payload is not where it belongs")
        try:
            found = jws.deserialize_compact(
                signature, self._key, registry=_REGISTRY, payload=payload
            )
        except (JoseError, ValueError):
            raise SignatureInvalidError("the key it names did not sign this") from None
        return found.payload


class PrivateKey:
    """A key that can sign. It never leaves whoever made it."""

    def __init__(self, key: OKPKey) -> None:
        self._key = key
        self.public = PublicKey(str(key.as_dict(private=False)["x"]))

    @classmethod
    def generate(cls) -> Self:
        """Return a fresh key."""
        return cls(OKPKey.generate_key(_CURVE))

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """Return the key in a PEM file.

        Raises:
            ValueError: it holds no Ed25519 key, or one that needs a password.
        """
        try:
            load_pem_private_key(pem, password=None)
            key = OKPKey.import_key(pem)
        except (JoseError, TypeError) as error:
            raise ValueError(str(error)) from error
        if key.curve_name != _CURVE or not key.is_private:
            raise ValueError(f"expected an {_CURVE} private key")
        return cls(key)

    @property
    def id(self) -> str:
        """The thumbprint."""
        return self.public.id

    def pem(self) -> bytes:
        """Return the key as PKCS #8 in PEM."""
        return self._key.as_pem(private=True)

    def sign_bytes(self, message: bytes) -> bytes:
        """Return the bare signature of `message`."""
        private: Any = self._key.get_op_key("sign")
        return private.sign(message)

    def sign(self, typ: str, payload: bytes, *, iat: int = 0, sub: str = "") -> str:
        """Return the JWS of `payload`, which is inside."""
        header: dict[str, object] = {"alg": ALGORITHM, "kid": self.id, "typ": typ}
        header |= {name: value for name, value in (("iat", iat), ("sub", sub)) if value}
        return jws.serialize_compact(header, payload, self._key, registry=_REGISTRY)

    def sign_detached(self, typ: str, payload: bytes, *, iat: int, sub: str) -> str:
        """Return the JWS of `payload`, which is elsewhere (RFC 7515, appendix F)."""
        return jws.detach_content(self.sign(typ, payload, iat=iat, sub=sub))


def read_header(signature: str) -> Header:
    """Return the header of a JWS. Nothing in it is proved yet.

    Raises:
        SignatureInvalidError: it is no JWS of ours.
    """
    protected, _, rest = signature.partition(".")
    if rest.count(".") != 1:
        raise SignatureInvalidError("expected a compact JWS")
    try:
        header = _HEADER.decode(decode(protected))
    except (ValueError, msgspec.MsgspecError):
        raise SignatureInvalidError("its header is not one that is made here") from None
    if header.alg != ALGORITHM:
        raise SignatureInvalidError(f"the algorithm must be {ALGORITHM}")
    return header


def unsigned(typ: str, payload: bytes, *, kid: str) -> str:
    """Return what must be signed to make a JWS of `payload`, for a signer that gives bytes only."""
    header = msgspec.json.encode({"alg": ALGORITHM, "kid": kid, "typ": typ})
    return f"{encode(header)}.{encode(payload)}"


def encode(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Return what base64url without padding spells; one spelling only.

    Raises:
        ValueError: it is none.
    """
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("expected base64url") from error
    if encode(data) != text:
        raise ValueError("expected base64url without padding")
    return data
