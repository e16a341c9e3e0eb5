"""The keys of this user's agents: files under `NODROP_HOME/keys`, made here and never sent.

`keys/TEAM/AGENT.pem` is the private key and `AGENT.json` says which relay knows it: a key is used
with that one and no other. A key on its way to be known is `AGENT.pem.next`, so that asking again
after a lost answer asks with the same key.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop.client.auth import joined, private_file
from nodrop.client.auth.joined import Known
from nodrop.client.ids import new_id
from nodrop.model.errors import InvalidRequestError
from nodrop.protocol import canonical
from nodrop.protocol.decoding import encode_strict
from nodrop.protocol.identity import bearer, signatures
from nodrop.protocol.identity.keys import PrivateKey

LIFETIME_SECONDS: Final = 600
"""Of a bearer token."""
RENEWED_SECONDS: Final = 60
"""How long before its end a bearer token is replaced."""


def now() -> int:
    """Return the time, in milliseconds."""
    return round(time.time() * 1_000)  # noqa: TID251  # the agent's own clock: it signs the time


class KeyFile:
    """Where the key of one agent is kept."""

    def __init__(self, home: Path, team: str, agent: str) -> None:
        folder = home / "keys" / team
        self.path = folder / f"{agent}.pem"
        self._next = folder / f"{agent}.pem.next"
        self._note = folder / f"{agent}.json"

    def known(self) -> Known | None:
        """Return which relay knows the key; None where there is no key, or none knows it yet."""
        try:
            note = joined.read(self._note)
        except FileNotFoundError:
            return None
        return note if self.path.exists() else None

    def read(self) -> PrivateKey:
        """Return the key.

        Raises:
            ValueError: the file does not hold one.
        """
        return _read(self.path)

    def upcoming(self) -> PrivateKey:
        """Return a key that no relay knows yet, made on first use."""
        if not self._next.exists():
            private_file.write(self._next, PrivateKey.generate().pem())
        return _read(self._next)

    def keep(self, known: Known) -> None:
        """Have the upcoming key be the key from now on."""
        private_file.write(self._note, msgspec.json.encode(known) + b"\n")
        self._next.replace(self.path)

    def discard(self) -> None:
        """Forget the upcoming key: the relay does not want it."""
        self._next.unlink(missing_ok=True)

    def changed(self) -> int:
        """Return a number that is another one when the key is."""
        return os.stat(self.path).st_mtime_ns  # noqa: PTH116  # a path object says no more, slower


def _read(path: Path) -> PrivateKey:
    try:
        return PrivateKey.from_pem(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


class AgentKey:
    """Signs in an agent's name. Follows the file, so that a rotated key is used at once."""

    def __init__(self, file: KeyFile, known: Known, *, clock: Callable[[], int] = now) -> None:
        self._file = file
        self._known = known
        self._clock = clock
        self._key = file.read()
        self._changed: int = file.changed()
        self._bearer = ""
        self._bearer_until = 0

    def signs(self, operation: str) -> bool:
        """Whether such requests are signed."""
        return operation in signatures.SIGNABLE

    def signature(self, operation: str, fields: Mapping[str, Any], handoff: str | None) -> str:
        """Return the signature of a request, made now.

        Raises:
            InvalidRequestError: it holds a number that cannot be signed.
        """
        sent: dict[str, Any] = canonical.loads(encode_strict(fields))
        said = signatures.statement(
            operation, sent, command_id=fields.get("command_id"), handoff_id=handoff
        )
        self._follow()
        try:
            return signatures.sign(said, self._key, team=self._known.team, now=self._clock())
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error

    async def current(self) -> str | None:
        """Return a bearer token that is good for a while."""
        self._follow()
        if self._clock() >= self._bearer_until:
            self._make()
        return self._bearer

    async def renewed(self, refused: str | None) -> str | None:
        """Return another bearer token than the one refused, if that was not up to date."""
        token = await self.current()
        return None if token == refused else token

    def _make(self) -> None:
        made_at = self._clock()
        self._bearer = bearer.make(
            self._key,
            agent=self._known.agent,
            team=self._known.team,
            now=made_at,
            lifetime_seconds=LIFETIME_SECONDS,
            jti=new_id(),
        )
        self._bearer_until = made_at + (LIFETIME_SECONDS - RENEWED_SECONDS) * 1_000

    def _follow(self) -> None:
        changed = self._file.changed()
        if changed != self._changed:
            self._key, self._changed, self._bearer_until = self._file.read(), changed, 0
