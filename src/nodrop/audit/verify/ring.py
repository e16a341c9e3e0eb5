"""The keys of a team, as its own log tells of them."""

from typing import Any

import msgspec

from nodrop.audit.verify.finding import DoesNotHoldError
from nodrop.model.errors import SignatureInvalidError
from nodrop.model.limits import MINUTE
from nodrop.protocol.entries import Entry
from nodrop.protocol.identity import signatures
from nodrop.protocol.identity.keys import PublicKey


class _Key(msgspec.Struct, kw_only=True):
    agent: str
    public: PublicKey
    expires_at: int | None = None
    revoked: bool = False


class _Invitation(msgspec.Struct, kw_only=True):
    agent: str | None
    role: str
    nonce: str
    expires_at: int
    gone: bool = False


class Ring:
    """Rebuilt entry by entry: what is asked of it is how it was at that entry."""

    def __init__(self) -> None:
        self.signed_only = False
        """Whether the team's rules want offers and outcomes signed."""
        self._keys: dict[str, _Key] = {}
        self._invitations: dict[str, _Invitation] = {}

    def read(self, entry: Entry, *, pruned: bool) -> None:
        """Take what an entry says about keys, invitations and rules."""
        data: dict[str, Any] = msgspec.json.decode(entry.data)
        match entry.type:
            case "invitation.created.v1":
                self._invitations[data["invitation_id"]] = _Invitation(
                    agent=data["agent"],
                    role=data["role"],
                    nonce=data["nonce"],
                    expires_at=data["expires_at"],
                )
            case "invitation.revoked.v1":
                if (invitation := self._invitations.get(data["invitation_id"])) is not None:
                    invitation.gone = True
            case "key.added.v1":
                self._add(entry, data, pruned=pruned)
            case "key.revoked.v1":
                if (key := self._keys.get(data["key_id"])) is not None:
                    key.revoked = True
            case "policy.set.v1":
                self.signed_only = data.get("signatures") == "required"
            case _:
                pass

    def _add(self, entry: Entry, data: dict[str, Any], *, pruned: bool) -> None:
        try:
            public = PublicKey(data["public_key"])
        except ValueError as error:
            raise DoesNotHoldError(f"its public key: {error}") from error
        if public.id != data["key_id"]:
            raise DoesNotHoldError("its key has another thumbprint")
        if public.id in self._keys:
            raise DoesNotHoldError("the key was added before")
        nonce = self._nonce(entry, data, pruned=pruned)
        if nonce is not None:
            try:
                signatures.check_proof(data["proof"], public, agent=data["agent"], nonce=nonce)
            except SignatureInvalidError as error:
                raise DoesNotHoldError(f"its proof: {error.detail}") from error
        for retired in data.get("retires", ()):
            if (older := self._keys.get(retired)) is not None:
                until = data["retires_at"]
                older.expires_at = min(older.expires_at or until, until)
        self._keys[public.id] = _Key(agent=data["agent"], public=public)

    def _nonce(self, entry: Entry, data: dict[str, Any], *, pruned: bool) -> str | None:
        """Return what the key's proof must be over; None: it was told of before this log begins."""
        if "invitation_id" not in data:
            return entry.command_id
        invitation = self._invitations.get(data["invitation_id"])
        if invitation is None:
            if pruned:
                return None
            raise DoesNotHoldError("nobody made the invitation it was added by")
        if invitation.gone or entry.at >= invitation.expires_at:
            raise DoesNotHoldError("the invitation it was added by was no longer good")
        if invitation.agent not in {None, data["agent"]} or invitation.role != data["role"]:
            raise DoesNotHoldError("the invitation it was added by was for somebody else")
        invitation.gone = True
        return invitation.nonce

    def verify(self, entry: Entry, jws: str, said: dict[str, Any], *, first: bool) -> str | None:
        """Check who signed what an entry came from; None: the key is older than this log.

        Args:
            entry: the entry.
            jws: the signature.
            said: what must have been signed.
            first: whether this is where it was said, and not where the relay repeats it.
        """
        try:
            header = signatures.keys.read_header(jws)
            key = self._keys.get(header.kid)
            if key is None:
                return None
            signatures.verify(jws, said, key.public, team=entry.team)
        except SignatureInvalidError as error:
            raise DoesNotHoldError(f"its signature: {error.detail}") from error
        if not first:
            return key.agent
        if key.agent != entry.actor:
            raise DoesNotHoldError(f"it is by {entry.actor}, and signed by {key.agent}")
        if key.revoked:
            raise DoesNotHoldError("it was signed with a key that was revoked")
        if key.expires_at is not None and entry.at >= key.expires_at:
            raise DoesNotHoldError("it was signed with a key that had expired")
        if abs(header.iat * 1000 - entry.at) > signatures.WINDOW_MS + MINUTE:
            raise DoesNotHoldError("it was not signed when it was written")
        return key.agent
