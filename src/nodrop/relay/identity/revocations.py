"""Revocations: who must hear at once that a key or a token is no longer good.

An open connection and a request that waits were let in earlier; a revocation ends them. Watching
costs a place in a dict.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from nodrop.log.port import Key
from nodrop.model.errors import UnauthenticatedError
from nodrop.relay.shows import Caller

T = TypeVar("T")


class Revocations:
    """Those who rely on a credential, by (team, id of the key or token)."""

    def __init__(self) -> None:
        self._watching: defaultdict[Key, dict[object, Callable[[], None]]] = defaultdict(dict)

    def watch(self, caller: Caller, ended: Callable[[], None]) -> Callable[[], None]:
        """Call `ended` when what `caller` was let in with is revoked; returns how to stop that."""
        credential = caller.key_id or caller.token_id or caller.link_id
        if credential is None:
            return lambda: None
        key, mark = (caller.team, credential), object()
        self._watching[key][mark] = ended

        def stop() -> None:
            watching = self._watching.get(key, {})
            watching.pop(mark, None)
            if not watching:
                self._watching.pop(key, None)

        return stop

    def revoked(self, team: str, credential: str) -> None:
        """Tell everybody who relies on it."""
        for ended in list(self._watching.pop((team, credential), {}).values()):
            ended()

    async def unless_revoked(self, caller: Caller, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns, unless the caller's credential is revoked meanwhile."""
        task = asyncio.ensure_future(work)
        revoked = False

        def end(waiting: asyncio.Task[T] = task) -> None:
            nonlocal revoked
            revoked = True
            waiting.cancel()

        stop = self.watch(caller, end)
        try:
            return await task
        except asyncio.CancelledError:
            if revoked and task.cancelled():
                raise UnauthenticatedError from None
            raise
        finally:
            stop()
            task.cancel()
            del task, end  # its error would hold this frame, and this frame the task
