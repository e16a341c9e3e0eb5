"""Somebody with a key: joins, signs in and signs, truthfully or not. For tests of who may what."""

from collections.abc import Mapping
from typing import Any

import msgspec

from nodrop.protocol import canonical
from nodrop.protocol.canonical import sha256
from nodrop.protocol.identity import signatures
from nodrop.protocol.identity.bearer import AUDIENCE, TYP
from nodrop.protocol.identity.keys import PrivateKey, encode


class KeyHolder:
    """An agent and its key. Every field of what it makes can be another one than it should be."""

    def __init__(self, agent: str, *, team: str = "default", key: PrivateKey | None = None) -> None:
        self.agent = agent
        self.team = team
        self.key = key or PrivateKey.generate()

    def joining(self, invitation: str) -> dict[str, str]:
        """Return the request that joins with an invitation."""
        return self.adding(sha256(invitation.encode()))

    def adding(self, nonce: str) -> dict[str, str]:
        """Return what adds the key: its public half, and the proof that this agent has the other."""
        return {
            "agent": self.agent,
            "public_key": self.key.public.text,
            "proof": signatures.prove(self.key, agent=self.agent, nonce=nonce),
        }

    def bearer(self, now: int, *, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """Return a bearer token made at `now` (milliseconds), with these claims in place of its own."""
        said = {
            "iss": self.agent,
            "sub": self.team,
            "aud": AUDIENCE,
            "iat": now // 1000,
            "exp": now // 1000 + 600,
            "jti": "1",
        }
        return self.jws({"typ": TYP, **(header or {})}, canonical.dumps(said | claims))

    def signed(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        now: int,
        handoff: str | None = None,
        **header: Any,
    ) -> dict[str, Any]:
        """Return `fields` with the signature of the request that they are."""
        said = signatures.statement(
            operation, fields, command_id=fields["command_id"], handoff_id=handoff
        )
        made = {"typ": signatures.REQUEST, "iat": now // 1000, "sub": self.team, **header}
        protected, _, signature = self.jws(made, canonical.rfc8785(said)).split(".")
        return {**fields, "signature": f"{protected}..{signature}"}

    def jws(self, header: Mapping[str, Any], payload: bytes) -> str:
        """Return a compact JWS with any header at all, signed with the key nevertheless."""
        protected = {"alg": "EdDSA", "kid": self.key.id, **header}
        message = f"{encode(msgspec.json.encode(protected))}.{encode(payload)}"
        return f"{message}.{encode(self.key.sign_bytes(message.encode()))}"
