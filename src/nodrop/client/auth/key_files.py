"""Private keys in files that only their owner can read. Made on first use."""

from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from nodrop.client.auth import private_file


def ed25519(path: Path) -> Ed25519PrivateKey:
    """Return the Ed25519 key in a file."""
    key = _kept(path, Ed25519PrivateKey.generate)
    if not isinstance(key, Ed25519PrivateKey):
        raise TypeError(f"{path} holds no Ed25519 key")
    return key


def es256(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the key in a file that signs with ES256."""
    key = _kept(path, lambda: ec.generate_private_key(ec.SECP256R1()))
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{path} holds no key for ES256")
    return key


def _kept(path: Path, make: Callable[[], PrivateKeyTypes]) -> PrivateKeyTypes:
    if not path.exists():
        made = make().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        private_file.write(path, made, replace=False)
    return serialization.load_pem_private_key(path.read_bytes(), password=None)
