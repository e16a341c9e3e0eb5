"""Erasing: the bodies of a handoff go, from the store and from every cache; the log stays whole.

That it shall happen is committed first, as an entry and a record. The record goes when the bodies
have, so that an erasure which a crash interrupted is carried out when the relay starts again, or by
another that serves the store and sees it go.
"""

from typing import Final

from nodrop.log.port import Record, Store, Wanted
from nodrop.model.errors import WrongStateError
from nodrop.model.handoff import DEAD, Handoff
from nodrop.relay.batch import Batch
from nodrop.relay.bodies import Bodies
from nodrop.relay.engine import Engine
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.shows import Shows

KIND: Final = "erasure"
"""Records of what is yet to be erased."""


class Erasing:
    """Carries out what was decided."""

    def __init__(self, engine: Engine, store: Store, bodies: Bodies, shows: Shows) -> None:
        self._engine = engine
        self._store = store
        self._bodies = bodies
        self._shows = shows

    async def require_no_heirs(self, handoff: Handoff) -> None:
        """Refuse while a successor goes on with what `handoff` left: it refers to those bodies."""
        heir: Handoff | None = handoff
        while heir is not None and heir.successor is not None:
            found = await self._store.handoffs([(heir.team, heir.successor)])
            heir = found[0] if found else None
            if heir is not None and not _closed(heir):
                raise WrongStateError(
                    f"its successor {heir.id} goes on with what it left",
                    next_step="Erase it when the successor is settled.",
                )

    async def finish(self, team: str, handoff_id: str) -> None:
        """Erase the bodies, and forget that it is to be done."""
        await self._store.erase(team, handoff_id)
        self._bodies.forget_handoff(team, handoff_id)
        self._shows.forget_handoff(team, handoff_id)

        def run(batch: Batch) -> None:
            batch.drop_record(team, KIND, handoff_id)

        await self._engine.submit(FunctionJob(Wanted(), run))

    async def resume(self) -> None:
        """Finish what was begun by a relay that stopped."""
        for record in await self._store.records(KIND):
            await self.finish(record.team, record.id)


def intended(handoff: Handoff) -> Record:
    """Return the record that `handoff` is to be erased."""
    return Record(team=handoff.team, kind=KIND, id=handoff.id, json=b"{}")


def _closed(handoff: Handoff) -> bool:
    undecided = handoff.state in DEAD and handoff.decision is None
    return handoff.settled_at is not None and not undecided
