"""Parked state that only its agent can read, and nobody can change or move.

What a framework saves may hold approvals, and frameworks trust it blindly. It is kept by the relay
as a checkpoint, so it is encrypted and authenticated (ChaCha20-Poly1305) under a key of the agent's
own: a file beside the agent's other keys, made on first use. Workers on several machines need the
same file.
"""

import base64
import hashlib
import os
import secrets
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from nodrop.client.auth import private_file
from nodrop.client.endings import Fail
from nodrop.client.shown import HandoffShown
from nodrop.protocol import canonical

SEALED: Final = "nodrop_sealed"
"""The key that a sealed checkpoint is known by."""
_VERSION: Final = b"nodrop.parked.v1"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class Seal:
    """Seals what one agent parks."""

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ValueError(f"a sealing key has {_KEY_BYTES} bytes, not {len(key)}")
        self._cipher = ChaCha20Poly1305(key)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Seal":
        """Use the key in a file, made on first use; of two who make it at once, one wins."""
        place = Path(path)
        if not place.exists():
            private_file.write(place, secrets.token_bytes(_KEY_BYTES), replace=False)
        return cls(place.read_bytes())

    def close(self, state: dict[str, Any], *, framework: str, handoff: HandoffShown) -> Any:
        """Return `state` as a checkpoint of this handoff and no other."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hidden = self._cipher.encrypt(
            nonce, msgspec.json.encode(state), _belongs(framework, handoff)
        )
        return {SEALED: base64.b64encode(nonce + hidden).decode()}

    def open(self, checkpoint: Any, *, framework: str, handoff: HandoffShown) -> dict[str, Any]:
        """Return what was sealed.

        Raises:
            Fail: with another key, for another handoff, or changed since.
        """
        try:
            sealed = base64.b64decode(checkpoint[SEALED], validate=True)
            nonce, hidden = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            plain = self._cipher.decrypt(nonce, hidden, _belongs(framework, handoff))
        except (InvalidTag, ValueError, TypeError) as error:
            reason = "the parked state was not sealed by this agent for this handoff"
            raise Fail(reason, code="parked_state_unreadable") from error
        return msgspec.json.decode(plain)


def is_sealed(checkpoint: Any) -> bool:
    """Whether a checkpoint is one of ours."""
    return isinstance(checkpoint, dict) and SEALED in checkpoint


def _belongs(framework: str, handoff: HandoffShown) -> bytes:
    """Return what a sealed state belongs to. A redriven handoff has another id, and the same."""
    payload = hashlib.sha256(canonical.dumps(handoff.payload)).hexdigest()
    words = (framework, handoff.recipient, handoff.capability, handoff.correlation_id, payload)
    return _VERSION + msgspec.json.encode(words)
