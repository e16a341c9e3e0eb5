"""Timers: the loop acts on due times that have passed, and on leases that lapsed."""

import heapq
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from nodrop.log.port import Changes, Process, Transaction
from nodrop.model import commands
from nodrop.model.clocks import due_at, ran_out
from nodrop.model.commands import RELAY
from nodrop.model.handoff import Handoff
from nodrop.relay.batch import Batch
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.consequences import Consequences
from nodrop.relay.ports import Clock

_TICKS_PER_HANDOFF_MAX: Final = 64
"""Clocks that one batch looks after for each handoff in it; the rest wait for the next."""
_LOOK_AGAIN_MS: Final = 100
"""How long a due handoff is left to another node, which may be acting on it already."""
_REST_MS_MAX: Final = 250
"""Clocks that ran out wait no longer than this for callers; a batch may have been held up."""
_FOREVER: Final = 2**62
_ALL: Final = 2**31


class Timers:
    """Acts when a due time passes or a process falls silent."""

    def __init__(
        self,
        engine: Engine,
        consequences: Consequences,
        *,
        clock: Clock,
        heard_at: Callable[[str, str], int],
    ) -> None:
        """Ask `heard_at` when any process of an agent last showed a sign of life, at any node."""
        self._engine = engine
        self._consequences = consequences
        self._clock = clock
        self._heard_at = heard_at
        self._behind = False
        """More came due than the last batch could look after."""

    async def look_after(
        self, silent: Sequence[Process], tx: Transaction, batch: Batch, *, set_back: bool
    ) -> None:
        """Take back what silent processes hold, then act on every timer that ran out.

        `set_back`: the clock stands before what the log tells of, so every timer counts anew.
        """
        self._take_back([p for p in silent if p.id != p.agent], batch)
        for process in silent:
            if process.id == process.agent:
                await self._look_after_queue(process, tx, batch)
        if set_back:
            await self._count_anew(tx, batch)
        await self._tick(tx, batch)

    def _take_back(self, silent: Sequence[Process], batch: Batch) -> None:
        """Take back what silent processes hold."""
        lapsed: list[tuple[int, Handoff]] = []
        for process in silent:
            for handoff in batch.held(process.team, process.id):
                until = self._engine.leases.until(handoff)
                if until is not None and until <= batch.now:
                    lapsed.append((until, handoff))
        for _, handoff in sorted(lapsed, key=lambda lease: lease[0]):
            after = batch.apply(
                handoff.team,
                handoff.id,
                commands.LapseLease(process=handoff.process or ""),
                by=RELAY,
                around=self._engine.retrying(handoff, batch.now),
            )
            self._engine.retries.note(handoff, after, now=batch.now)
            self._engine.takers.lapsed(handoff.team, handoff.process or "", batch.now)
        for process in silent:
            held = batch.held(process.team, process.id)
            if all(self._engine.leases.until(handoff) is None for handoff in held):
                batch.forget(process.team, process.id)

    async def _look_after_queue(self, process: Process, tx: Transaction, batch: Batch) -> None:
        """Hold an agent that is gone to nothing that it acknowledged as queued."""
        team, agent = process.team, process.agent
        heard_at = max(self._heard_at(team, agent), self._engine.up_since)
        if heard_at + self._engine.queued_lease_ms > batch.now:
            batch.see(self._engine.leases.see(msgspec.structs.replace(process, seen_at=heard_at)))
            return
        for handoff in batch.admit(await tx.claimable(team, agent, limit=_ALL)):
            if handoff.queued is None:
                continue
            known = await self._consequences.around_unqueued(batch, handoff)
            around = self._engine.surroundings(**known)
            batch.apply(team, handoff.id, commands.LapseQueue(), by=RELAY, around=around)
        batch.forget(team, agent)

    async def _count_anew(self, tx: Transaction, batch: Batch) -> None:
        """Let no clock wait for a time that may be a year away: the clock was set back.

        Everything in one commit: the next start must not take a part of it for the whole.
        """
        for handoff in batch.admit(await tx.due(now=_FOREVER, limit=_ALL)):
            batch.apply(
                handoff.team,
                handoff.id,
                commands.CountAnew(),
                by=RELAY,
                around=self._engine.surroundings(),
            )

    async def _tick(self, tx: Transaction, batch: Batch) -> None:
        if self._engine.agenda.next_due > batch.now:
            return
        due = batch.admit(await tx.due(now=batch.now, limit=self._engine.limits.batch_commands_max))
        await self._consequences.recall(due)
        until = batch.now
        self._behind = len(due) >= self._engine.limits.batch_commands_max
        if self._behind:
            until = min(due_at(due[-1]) or until, until)  # what comes later waits for the rest
        # One clock at a time, whosever is next: what happened while nobody looked is told in order.
        waiting = [
            (timer.at, number)
            for number, handoff in enumerate(due)
            if (timer := ran_out(handoff, batch.now)) is not None
        ]
        heapq.heapify(waiting)
        for _ in range(_TICKS_PER_HANDOFF_MAX * len(due)):
            if not waiting:
                return
            _, number = heapq.heappop(waiting)
            handoff = due[number] = await self._consequences.tick(batch, due[number])
            timer = ran_out(handoff, batch.now)
            if timer is not None and timer.at <= until:
                heapq.heappush(waiting, (timer.at, number))

    # --- once it is committed ---

    async def read_on(self, now: int, *, alone: bool) -> None:
        """Know what is left of what was due when the batch was decided.

        Other nodes act on what is due as well, unless this one is `alone`.
        """
        later_by = 0 if alone else _LOOK_AGAIN_MS
        if self._behind:
            # Where much came due at once, callers get as much of the time as the clocks do.
            took = self._clock.now() - now
            later_by = took + min(took, _REST_MS_MAX)
        await self._engine.agenda.read_on(now, later_by=later_by)

    def note_processes(
        self, silent: Sequence[Process], batch: Batch, changes: Changes, *, alone: bool
    ) -> None:
        """Know which processes there are, and when each that was silent must be looked after again."""
        leases = self._engine.leases
        if alone and changes.processes:
            leases.kept(changes.processes)
        for team, process in changes.processes_gone:
            leases.forget(team, process)
        for process in silent:
            for handoff in batch.held(process.team, process.id):
                leases.expect(handoff)
