"""Signs of life: what a process holds, and that it still does."""

from nodrop.log.port import Process, Wanted
from nodrop.model import commands
from nodrop.model.handoff import Handoff
from nodrop.relay.batch import Batch
from nodrop.relay.engine import Engine
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.ports import Clock
from nodrop.relay.shows import Caller


class Holding:
    """Keeps what processes hold, in the log like everything else."""

    def __init__(self, engine: Engine, *, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def heartbeat(self, caller: Caller, process_id: str) -> tuple[tuple[str, int], ...]:
        """Keep what a process holds; return (handoff id, attempt) of each delivery."""
        # It is heard of when it arrives, however long the store keeps it waiting.
        self._engine.leases.hear(caller.team, process_id, self._clock.now())

        def run(batch: Batch) -> tuple[tuple[str, int], ...]:
            rows = [h for h in batch.held(caller.team, process_id) if h.recipient == caller.agent]
            self.see(batch, caller, process_id, rows)
            held: list[tuple[str, int]] = []
            for row in rows:
                handoff = batch.apply(
                    caller.team,
                    row.id,
                    commands.Revive(process=process_id),
                    by=caller,
                    around=self._engine.surroundings(),
                )
                if handoff.live:
                    held.append((handoff.id, handoff.attempt))
            return tuple(held)

        job = FunctionJob(Wanted(), run, held=(caller.team, process_id), alive=True)
        return await self._engine.submit(job)

    async def held(self, team: str, process_id: str) -> list[Handoff]:
        """Return what a process holds, which does not keep it."""
        job = FunctionJob(
            Wanted(), lambda batch: batch.held(team, process_id), held=(team, process_id)
        )
        return await self._engine.submit(job)

    def see(self, batch: Batch, caller: Caller, process_id: str, rows: list[Handoff]) -> None:
        """Note that a process which holds `rows` is there."""
        known = self._engine.leases.get(caller.team, process_id)
        beats = [h.heartbeat_ms for h in rows if h.heartbeat_ms is not None]
        heartbeat_ms = known.heartbeat_ms if known else min(beats, default=None)
        if heartbeat_ms is None:
            return  # it holds nothing that a heartbeat could keep
        process = Process(
            team=caller.team,
            id=process_id,
            agent=caller.agent,
            heartbeat_ms=heartbeat_ms,
            seen_at=batch.now,
        )
        batch.see(self._engine.leases.see(process))
