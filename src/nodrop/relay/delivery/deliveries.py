"""Delivering: waiting handoffs go to consumers with credit, in the commit that made it possible."""

from collections.abc import Sequence

from nodrop.log.port import Key, Process, Store, Transaction, takeable
from nodrop.model import commands
from nodrop.model.clocks import rank
from nodrop.model.commands import RELAY, Binding
from nodrop.model.handoff import Handoff
from nodrop.relay.batch import Batch
from nodrop.relay.delivery.binding import Binder
from nodrop.relay.delivery.waiters import Taker
from nodrop.relay.engine import Engine

Served = dict[int, tuple[Taker, list[Handoff]]]
"""Who is given what by a batch, by the consumer's identity."""
Fresh = dict[Key, list[Handoff]]
"""Handoffs that may be handed over now, by (team, recipient)."""


class Deliveries:
    """Gives handoffs to the consumers of their recipients."""

    def __init__(self, engine: Engine, store: Store, binder: Binder) -> None:
        self._engine = engine
        self._store = store
        self._binder = binder

    async def serve(
        self,
        tx: Transaction,
        batch: Batch,
        to_check: Sequence[Key],
        fresh: Fresh,
        served: Served,
    ) -> bool:
        """Deliver waiting handoffs to consumers with credit, in the commit that made it possible.

        `to_check` are the agents whose inboxes must be read. The others were given all there was, or can
        have nothing: only what this batch put into their inboxes, `fresh`, is looked at. Returns whether
        something was rejected instead, because it does not fit the contract of its recipient.
        """
        rejected = False
        surroundings = self._engine.surroundings
        usual = surroundings()
        takers = self._engine.takers
        looked_through = dict.fromkeys(to_check)
        for key in {**looked_through, **fresh} if to_check else fresh:
            team, agent = key
            free = takers.free(team, agent)
            if not free:
                takers.emptied.discard(key)
                continue
            limit = min(free, self._engine.limits.deliveries_max)
            queue = fresh.get(key, [])
            bindings: dict[str, Binding] = {}
            while True:
                if key in looked_through:
                    most = limit + len(batch.before)  # what changed may no longer be so
                    stored = batch.admit(await tx.claimable(team, agent, limit=most))
                    # The batch may have given one of them to another agent, which the store ignores.
                    mine = [h for h in stored if takeable(h) and h.recipient == agent]
                    queue = list({h.id: h for h in (*queue, *mine)}.values())
                    if len(stored) < most:
                        takers.emptied.add(key)
                if len(queue) > 1:
                    queue = [h for *_, h in sorted([(rank(h), h.id, h) for h in queue])]
                unbound = [h for h in queue[:limit] if h.unbound]
                unfit = await self._bind(batch, unbound, bindings) if unbound else None
                if not unfit:
                    break
                rejected = True
                queue = [h for h in queue if h.id not in unfit]
            few = queue[:limit]
            if any([taker.once for taker in takers.by_agent.get(key, ())]):  # noqa: C419  # a list is quicker for so few
                few = await self._fitting(batch, few)
            assigned = takers.assign(key, few, now=batch.now)
            for taker, handoff in assigned:
                given = served.get(id(taker))
                if given is None:
                    given = served[id(taker)] = (taker, [])
                    self._begin_serving(batch, taker)
                binding = bindings.get(handoff.id)
                delivered = batch.apply(
                    team,
                    handoff.id,
                    taker.command,
                    by=taker.actor,
                    around=usual if binding is None else surroundings(binding=binding),
                    command_id=taker.command_id,
                )
                given[1].append(delivered)
            if len(queue) > len(assigned):  # a consumer may have left while the store was read
                takers.recheck([key])
                if free > limit or len(few) < min(limit, len(queue)):
                    self._engine.wake.set()
        return rejected

    async def _fitting(self, batch: Batch, handoffs: list[Handoff]) -> list[Handoff]:
        """Return the first of these, as many as one answer has room for, and at least one."""
        if not handoffs:
            return handoffs
        team, left = handoffs[0].team, self._engine.limits.page_bytes_max
        sizes = await self._store.body_sizes(team, [(h.id, 1) for h in handoffs])
        for count, handoff in enumerate(handoffs):
            brought = batch.bodies.get((team, handoff.id, 1)) or b""
            left -= sizes.get((handoff.id, 1), len(brought))
            if left < 0 and count:
                return handoffs[:count]
        return handoffs

    async def _bind(
        self, batch: Batch, handoffs: Sequence[Handoff], bindings: dict[str, Binding]
    ) -> set[str]:
        """Find the contracts of first deliveries; return what does not fit its own, rejected."""
        unfit: set[str] = set()
        for handoff in handoffs:
            binding = await self._binder.fetch(batch, handoff)
            if binding is None:
                continue
            bindings[handoff.id] = binding
            if binding.refused is not None:
                unfit.add(handoff.id)
                deliver = commands.Deliver(process=handoff.recipient, heartbeat_ms=None)
                around = self._engine.surroundings(binding=binding)
                batch.apply(handoff.team, handoff.id, deliver, by=RELAY, around=around)
        return unfit

    def _begin_serving(self, batch: Batch, taker: Taker) -> None:
        """Keep the process of a consumer, and what it asked for, with what it is given."""
        leases, team, name, beat = (
            self._engine.leases,
            taker.team,
            taker.process,
            taker.heartbeat_ms,
        )
        if (
            beat is not None
            and not (
                leases.is_kept(team, name, heartbeat_ms=beat)
                and (team, name) not in batch.processes_gone
            )
            and not batch.sees(team, name, heartbeat_ms=beat)
        ):
            # To be delivered to is no sign of life: what else the process holds is not kept by it.
            known = leases.get(team, name)
            process = Process(
                team=team,
                id=name,
                agent=taker.agent,
                heartbeat_ms=beat,
                seen_at=known.seen_at if known else batch.now,
            )
            batch.see(leases.see(process))
        if taker.command_id is not None and taker.request is not None:
            batch.requests[taker.team, taker.agent, taker.command_id] = taker.request
