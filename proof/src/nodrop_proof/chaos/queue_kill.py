"""An agent is killed with -9 while handoffs wait in its queue.

Each round has an agent of its own, with one process or two of one slot each. It is handed five
handoffs and finishes none: all are acknowledged within a second, with the positions 1 to 5, and
nobody is told. In every second round the relay is killed too, and started again: the queue stays. Where
there are two processes, one is killed first: the other keeps the queue. Then all are killed: what is
queued must be void, and each step that waits for an acknowledgement must run. At the end the agent comes
back, and every caller gets its outcome.

The relay takes an agent for gone after seconds, not after a minute (`short_silence`). Time is that of the
log's entries. That enough of it has passed is known from a handoff that nobody acknowledges: the person
is told of it.

CONTROL `unqueued`, of `worker`.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.client.client import Client
from nodrop.client.handoff import Handoff
from nodrop.protocol.times import parse_time
from nodrop_proof.chaos import export, short_silence
from nodrop_proof.chaos.caller import Caller
from nodrop_proof.chaos.callers import NOBODY, connected
from nodrop_proof.chaos.crew import HEARTBEAT_SECONDS, WorkerProcess
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess, ServedRelay
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.worker import UNQUEUED

BURST: Final = 5
ACK_MS_MAX: Final = 1_000
"""From the offer to its acknowledgement."""
PAGE_AFTER: Final = "3s"
"""How long something may be unacknowledged before the person is told; longer than an agent may be silent."""
WAIT_SECONDS_MAX: Final = 60.0
"""For anything that must come."""
FOREVER_SECONDS: Final = 3_600
"""How long a worker takes that does not finish."""

Entry = Mapping[str, Any]


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Kill `plan.count` agents with a queue."""
    async with RelayProcess(plan.folder / "relay", program=short_silence.__name__) as relay:
        return await torment(plan, progress, relay, mortal=relay)


async def torment(
    plan: Plan,
    progress: Callable[[int, int], None],
    relay: ServedRelay,
    *,
    mortal: RelayProcess | None = None,
) -> Report:
    """Kill agents of `relay`, which is killed itself now and then if it is `mortal`."""
    began = time.monotonic()
    control = next(iter(plan.controls & {UNQUEUED}), "")
    wrong: list[str] = []
    acks_ms: list[int] = []
    restarts_ms: list[float] = []
    with Record(plan.folder / "records.jsonl") as record:
        async with connected(relay, count=1) as [client], relay.operator() as me:
            for number in range(plan.count):
                round_ = _Round(relay, record, client, me, agent=f"busy-{number}", control=control)
                killed = mortal if number % 4 in {0, 3} else None
                await round_.play(processes=1 + number % 2, killed=killed)
                wrong += round_.wrong
                acks_ms += round_.acks_ms
                restarts_ms += round_.restarts_ms
                progress(number + 1, plan.count)
    async with relay.operator() as me:
        verdict = await export.check(record.path, me)
    return msgspec.structs.replace(verdict, wrong=(*verdict.wrong, *wrong)).report(
        plan,
        count=plan.count,
        seconds=time.monotonic() - began,
        restarts_ms=restarts_ms,
        extras={"ack_ms_max": max(acks_ms, default=None)},
    )


class Story:
    """What the log says about one handoff that is queued."""

    def __init__(self) -> None:
        self.offered_at = 0
        self.acknowledged_at: int | None = None
        self.position: int | None = None
        """As it was last said."""
        self.queued = False
        """Whether a queued acknowledgement is in force."""
        self.acknowledgements = 0
        """How often it was acknowledged as queued."""
        self.lapses = 0
        self.told = 0
        """How often a person was told."""
        self.held = False

    def read(self, entry: Entry) -> None:
        """Take the next entry about it."""
        at, data = parse_time(entry["at"]), entry["data"]
        match entry["type"]:
            case "handoff.offered.v1":
                self.offered_at = at
            case "handoff.queued.v1":
                self.queued = True
                self.acknowledgements += 1
                self._acknowledge(at, data)
            case "handoff.accepted.v1":
                self.held = True
                self._acknowledge(at, data)
            case "handoff.delivered.v1":
                self.queued = False
            case "handoff.returned.v1":
                self.held = False
            case "handoff.queue_lapsed.v1":
                self.queued = False
                self.lapses += 1
            case "handoff.escalated.v1":
                self.told += 1
            case _:
                pass

    def _acknowledge(self, at: int, data: Mapping[str, Any]) -> None:
        self.position = data["position"]
        if self.acknowledged_at is None:
            self.acknowledged_at = at


class _Round:
    """One agent, its burst, and its end."""

    def __init__(
        self,
        relay: ServedRelay,
        record: Record,
        client: Client,
        me: Client,
        *,
        agent: str,
        control: str,
    ) -> None:
        self.wrong: list[str] = []
        self.acks_ms: list[int] = []
        self.restarts_ms: list[float] = []
        self._relay = relay
        self._record = record
        self._caller = Caller(client, record)
        self._me = me
        self._agent = agent
        self._control = control
        self._after = 0
        self._registered: set[str] = set()
        self._stories: defaultdict[str, Story] = defaultdict(Story)

    async def play(self, *, processes: int, killed: RelayProcess | None) -> None:
        """Let it happen, and write down what should not have."""
        busy = [self._process(concurrency=1, pause=FOREVER_SECONDS) for _ in range(processes)]
        back = self._process(concurrency=BURST, pause=0)
        try:
            handoffs = await self._fill(busy)
            await self._judge_burst(handoffs, timed=handoffs[processes - 1 :])
            if killed is not None:
                await killed.kill()
                self.restarts_ms.append(await killed.start())
            for process in busy[1:]:
                await process.kill()
                await self._judge_return()
            await self._outwait()
            self._judge_peace()
            for process in busy:
                await process.kill()
            await self._judge_end()
            await back.start()
            for handoff in handoffs:
                await self._caller.outcome(handoff.title or "", handoff)
        finally:
            for process in (*busy, back):
                await process.kill()

    async def _fill(self, busy: Sequence[WorkerProcess]) -> list[Handoff]:
        """Start the agent, occupy its slots, and offer what must wait behind."""
        await busy[0].start()
        if not await self._until(lambda: self._agent in self._registered):
            self.wrong.append(f"{self._agent}: it never came")
        handoffs: list[Handoff] = []
        for process in busy[1:]:
            handoffs.append(await self._offer(len(handoffs)))
            await process.start()
            # Both have one by then.
            handoffs.append(await self._offer(len(handoffs)))
            await self._until(lambda: self._holds(handoffs))
        while len(handoffs) < BURST:
            handoffs.append(await self._offer(len(handoffs)))
        return handoffs

    async def _judge_burst(self, handoffs: Sequence[Handoff], *, timed: Sequence[Handoff]) -> None:
        stories = [self._stories[handoff.id] for handoff in handoffs]
        if not await self._until(lambda: all(s.acknowledged_at for s in stories)):
            late = sum(story.acknowledged_at is None for story in stories)
            self.wrong.append(f"{self._agent}: {late} of {len(stories)} are not acknowledged")
            return
        positions = [story.position for story in stories]
        if sorted(positions, key=lambda p: p or 0) != list(range(1, BURST + 1)):
            self.wrong.append(f"{self._agent}: its positions are {positions}")
        for handoff in timed:
            story = self._stories[handoff.id]
            took = (story.acknowledged_at or 0) - story.offered_at
            self.acks_ms.append(took)
            if took > ACK_MS_MAX:
                self.wrong.append(f"{handoff.title}: acknowledged after {took} ms")
        for handoff in handoffs:
            if self._stories[handoff.id].acknowledgements > 1:
                self.wrong.append(f"{handoff.title}: acknowledged as queued more than once")

    async def _judge_return(self) -> None:
        """The process that is left acknowledges what the killed one worked on."""
        stories = self._stories.values()
        if not await self._until(lambda: sum(story.queued for story in stories) == BURST - 1):
            self.wrong.append(f"{self._agent}: what its killed process had is not in its queue")

    async def _outwait(self) -> None:
        """Return when the person was told of something that was offered just now."""
        ask = f"{self._agent}-ghosted"
        ghosted = await self._caller.hand_off(ask, to=NOBODY, waits=False, terms=_terms())
        if not await self._until(lambda: self._stories[ghosted.id].told):
            self.wrong.append(f"{ask}: nobody was told")
        del self._stories[ghosted.id]

    def _judge_peace(self) -> None:
        """Nothing happens to a queue while any process of its agent is there."""
        for handoff_id, story in self._stories.items():
            if story.lapses or story.told:
                self.wrong.append(f"{handoff_id}: {self._agent} had it queued, and it went on")

    async def _judge_end(self) -> None:
        """An agent that is gone holds nothing, and those who are to know are told."""
        queued = [story for story in self._stories.values() if story.queued]
        if not queued:
            self.wrong.append(f"{self._agent}: nothing was queued when it was killed")
        await self._until(lambda: all(story.lapses and story.told for story in queued))
        for handoff_id, story in self._stories.items():
            if story in queued and not (story.lapses and story.told):
                self.wrong.append(f"{handoff_id}: {self._agent} is gone, and still holds it")

    # --- the parts of it ---

    def _process(self, *, concurrency: int, pause: float) -> WorkerProcess:
        return WorkerProcess(
            self._relay,
            record=self._record.path,
            heartbeat_seconds=HEARTBEAT_SECONDS,
            arguments={
                "--name": self._agent,
                "--concurrency": str(concurrency),
                "--pause": str(pause),
                "--control": self._control,
            },
        )

    async def _offer(self, number: int) -> Handoff:
        ask = f"{self._agent}-{number}"
        return await self._caller.hand_off(ask, to=self._agent, terms=_terms())

    def _holds(self, handoffs: Collection[Handoff]) -> bool:
        return all(self._stories[handoff.id].held for handoff in handoffs)

    async def _until(self, enough: Callable[[], object]) -> bool:
        """Follow the log until it says so; whether it did in all this time."""
        ends = time.monotonic() + WAIT_SECONDS_MAX
        while not enough():
            if time.monotonic() > ends:
                return False
            asked = {"after": self._after, "wait": 1, "limit": 500}
            page = await self._me.call("log", asked)
            self._read(page["entries"])
            self._after = page["after"]
        return True

    def _read(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry["type"] == "agent.registered.v1":
                self._registered.add(entry["actor"])
            mine = (entry["correlation_id"] or "").startswith(f"{self._agent}-")
            if mine and entry["handoff_id"] is not None:
                self._stories[entry["handoff_id"]].read(entry)


def _terms() -> dict[str, Any]:
    step = {"when": "unacknowledged", "after": PAGE_AFTER, "notify": "me"}
    return {"escalation": [step], "deadline": "1h"}
