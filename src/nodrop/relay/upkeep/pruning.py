"""Pruning: cutting the log's old end off at a signed horizon.

What is cut can no longer be checked, so the horizon says, under the relay's signature, where the
log was and how every handoff stood that goes on beyond it.
"""

from typing import Final

from nodrop.log.port import Horizon, LogPage, Store
from nodrop.model.following import undecided
from nodrop.model.handoff import Handoff
from nodrop.model.machine import evolve
from nodrop.protocol import canonical
from nodrop.protocol import events as wire_events
from nodrop.protocol.entries import Entry
from nodrop.relay.ports import Clock, Signer

PAGE: Final = 1_000


class Pruning:
    """Forgets what was settled long ago."""

    def __init__(self, store: Store, *, clock: Clock, signer: Signer) -> None:
        self._store = store
        self._clock = clock
        self._signer = signer

    async def prune(self, team: str, *, older_than_ms: int) -> int:
        """Cut everything older than that off; return how many entries went."""
        before = self._clock.now() - older_than_ms
        last, standing = await self._stand_at(team, before)
        if last is None:
            return 0
        kept = await self._kept(standing, before)
        now = self._clock.now()
        stated = {
            "team": team,
            "seq": last.seq,
            "hash": last.hash,
            "at": now,
            "snapshots": canonical.sha256(canonical.dumps(kept)),
        }
        horizon = Horizon(
            team=team,
            seq=last.seq,
            hash=last.hash,
            at=now,
            snapshots=kept,
            public_key=self._signer.public_key,
            signature=self._signer.sign(canonical.dumps(stated)),
        )
        return await self._store.prune(horizon, forget_before=before)

    async def _kept(self, standing: dict[str, Handoff], before: int) -> list[Handoff]:
        """Return what goes on beyond the cut: open, told of later, or carried on by one that is."""
        settled = [h for h in standing.values() if _forgettable(h, before)]
        going_on = {h.id for h in standing.values()} - {h.id for h in settled}
        for start in range(0, len(settled), PAGE):
            page = settled[start : start + PAGE]
            rows = await self._store.handoffs([(h.team, h.id) for h in page])
            going_on |= {row.id for row in rows if row.version > standing[row.id].version}
        for handoff_id in list(going_on):
            going_on |= _inherited_from(standing[handoff_id]) & standing.keys()
        return [standing[handoff_id] for handoff_id in sorted(going_on)]

    async def _stand_at(self, team: str, before: int) -> tuple[Entry | None, dict[str, Handoff]]:
        """Fold the log up to `before`, from the horizon of an earlier pruning on."""
        earlier = await self._store.horizon(team)
        standing = {h.id: h for h in earlier.snapshots} if earlier else {}
        after, last = (earlier.seq if earlier else 0), None
        while True:
            page = await self._store.log(LogPage(team=team, after=after, limit=PAGE))
            for entry in page:
                if entry.at >= before:
                    return last, standing
                last, after = entry, entry.seq
                if entry.handoff_id is not None and entry.version is not None:
                    standing[entry.handoff_id] = evolve(
                        standing.get(entry.handoff_id),
                        wire_events.decode(entry.type, bytes(entry.data)),
                        team=team,
                        handoff_id=entry.handoff_id,
                        by=entry.actor,
                        at=entry.at,
                    )
            if len(page) < PAGE:
                return last, standing


def _inherited_from(handoff: Handoff) -> set[str]:
    """Return the handoffs whose bodies this one still refers to."""
    refs = [step.value for step in handoff.steps]
    refs += [ref for answer in handoff.answers for ref in (answer.question, answer.answer)]
    refs += [handoff.checkpoint] if handoff.checkpoint else []
    return {ref.of for ref in refs if ref.of is not None}


def _forgettable(handoff: Handoff, before: int) -> bool:
    settled = handoff.settled_at is not None and handoff.settled_at < before
    return settled and not undecided(handoff)
