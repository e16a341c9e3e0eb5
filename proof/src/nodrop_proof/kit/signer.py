"""A relay's own key that is kept nowhere."""

from nodrop.protocol.identity.keys import PrivateKey, encode


class MemorySigner:
    """Signs with a key that is made anew for every relay."""

    def __init__(self) -> None:
        self._key = PrivateKey.generate()

    @property
    def public_key(self) -> str:
        """The Ed25519 public key, base64url."""
        return self._key.public.text

    def sign(self, message: bytes) -> str:
        """Return the signature of `message`, base64url."""
        return encode(self._key.sign_bytes(message))
