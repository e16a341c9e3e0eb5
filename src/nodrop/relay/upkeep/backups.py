"""Backups: verified copies of the whole store, made while it is served, one at a time."""

import asyncio

from nodrop.log.port import Copy, Store
from nodrop.model.errors import NotFoundError
from nodrop.protocol import views
from nodrop.protocol.requests import Backup
from nodrop.relay.ports import Clock, Ids, Signer
from nodrop.relay.upkeep.checkpoints import signed


class Backups:
    """Makes backups; a repeated or a second request gets the one that is under way."""

    def __init__(self, store: Store, *, clock: Clock, ids: Ids, signer: Signer) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._signer = signer
        self._latest: asyncio.Task[Copy] | None = None
        self._command_id: str | None = None
        """The command that asked for the latest one."""

    async def make(self, team: str, request: Backup) -> views.BackupAnswer:
        """Return where the backup is, and where the log of `team` ends in it."""
        latest = self._latest
        repeated = request.command_id is not None and request.command_id == self._command_id
        if latest is None or (latest.done() and not (repeated and _succeeded(latest))):
            name = f"nodrop-{self._ids.new()}.db"  # ids are in the order of time
            latest = self._latest = asyncio.create_task(self._store.backup(name))
            latest.add_done_callback(_succeeded)  # its error is taken note of
            self._command_id = request.command_id
        # A caller who goes away does not end it: a repeat of the request finds it.
        copy = await asyncio.shield(latest)
        head = copy.heads.get(team)
        if head is None:
            raise NotFoundError(f"team {team} was made after this backup began")
        return views.BackupAnswer(
            path=copy.path,
            size_bytes=copy.size_bytes,
            checkpoint=signed(team, head, at=self._clock.now(), signer=self._signer),
        )

    async def stop(self) -> None:
        """Give up a backup that is under way."""
        if self._latest is not None:
            self._latest.cancel()
            await asyncio.gather(self._latest, return_exceptions=True)


def _succeeded(made: asyncio.Task[Copy]) -> bool:
    return not made.cancelled() and made.exception() is None
