"""A wall clock that jumps: no lease ends early because of it, and none fails to end.

The relay runs on the clock it is shipped with, on a host whose time of day is set now and then by an
hour or a year, which changes its time zone, falls asleep, and whose relay is restarted in between.
What a lease is due by is counted here from what really passed.
"""

import asyncio
import os
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from random import Random
from typing import Any, Final
from unittest import mock

import msgspec
import pytest

from kit import mutations
from nodrop.app import SystemClock
from nodrop.log.memory import MemoryStore
from nodrop.log.port import LogPage
from nodrop.model.errors import AlreadyFinishedError
from nodrop.protocol import requests
from nodrop.protocol.requests import Request
from nodrop.relay.loop import Loop
from nodrop.relay.ports import Clock
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.clock import T0
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.ids import NoSigner, SeededIds

STEPS: Final = int(os.environ.get("NODROP_JUMP_STEPS", "10000"))

SECOND, HOUR = 1_000, 3_600_000
YEAR: Final = 365 * 24 * HOUR
AGES: Final = "3000d"
"""Long enough for nothing but leases to be due."""
TEAM: Final = "default"
ASKING: Final = Caller(team=TEAM, agent="inbox_monitor")
WORKING: Final = Caller(team=TEAM, agent="code_agent")
PROCESSES: Final[dict[str, float | None]] = {
    "quick": 1.0, "usual": 10.0, "slow": 60.0, "turn": None, "another_turn": None
}  # fmt: skip
"""How often each of them gives a sign of life, in seconds; None: only when it does something."""
ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu")
PIECE_MS: Final = 30 * SECOND
"""How long the relay may take to notice that the host was asleep."""
ROUNDING_MS: Final = 3


class Host:
    """A computer: what passes, what its clock on the wall says, and when it was asleep."""

    def __init__(self) -> None:
        self.set_ms = 0
        """By how much the wall clock was set, in all."""
        self.slept_at = self.woke_at = -PIECE_MS
        self._asleep_ms = 0

    def passed_ms(self) -> int:
        """Return what has really passed."""
        return round(loop.running().time() * 1_000) + self._asleep_ms

    def passing_ns(self) -> int:
        return self.passed_ms() * 1_000_000

    def wall_ns(self) -> int:
        return (T0 + self.passed_ms() + self.set_ms) * 1_000_000

    def fall_asleep(self, ms: int) -> None:
        self.slept_at = self.passed_ms()
        self._asleep_ms += ms
        self.woke_at = self.passed_ms()


class Delivery(msgspec.Struct, kw_only=True):
    """What a process holds, and when it was last heard of it."""

    attempt: int
    process: str
    sign_at: int
    acknowledged: bool = False


MakeClock = Callable[[Host], Clock]


def shipped(host: Host) -> Clock:
    return SystemClock(wall_ns=host.wall_ns, passing_ns=host.passing_ns)


class Office:
    """The relay on this host, those who work with it, and what they are owed."""

    def __init__(self, clock: MakeClock, seed: int) -> None:
        self.host = Host()
        self.lapses = 0
        self._clock = clock
        self._random = Random(seed)
        self._store = MemoryStore()
        self._relay: Relay
        self._up_since = 0
        self._ahead_ms = 0
        """What the relay's clock says beyond what has passed."""
        self._held: dict[str, Delivery] = {}
        self._heard_at: dict[str, int] = {}
        self._seq = 0

    async def start(self) -> None:
        clock = self._clock(self.host)
        self._up_since = self.host.passed_ms()
        self._ahead_ms = clock.now() - self._up_since
        ids = SeededIds(clock, self._random)
        self._relay = await Relay.start(self._store, clock=clock, ids=ids, signer=NoSigner())
        await self._relay.ensure_team(TEAM)

    async def ask(self, by: Caller, operation: str, request: Request, about: str = "") -> Any:
        return (await self._relay.call(by, operation, request, reference=about or None)).answer

    # --- what goes on ---

    async def step(self) -> None:
        r = self._random
        what = r.choices(
            (
                self._wait,
                self._beat,
                self._take,
                self._finish,
                self._set,
                self._sleep,
                self._restart,
            ),
            weights=(45, 20, 15, 5, 10, 2, 3),
        )[0]
        await what()
        await self.check()

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.choice((0.3, 2, 7, 20, 45)))

    async def _beat(self) -> None:
        process = self._random.choice([p for p in PROCESSES if PROCESSES[p] is not None])
        await self.ask(WORKING, "heartbeat", requests.Heartbeat(process=process))
        self._heard_at[process] = self.host.passed_ms()

    async def _take(self) -> None:
        process = self._random.choice(list(PROCESSES))
        if sum(d.process == process for d in self._held.values()) >= 3:
            return
        offer = requests.Offer(
            to=WORKING.agent, title="work", deadline=AGES, accept_within=AGES, update_every=AGES
        )
        handoff_id = (await self.ask(ASKING, "offer", offer)).handoff.id
        take = requests.Take(process=process, heartbeat_seconds=PROCESSES[process])
        [delivery] = (await self.ask(WORKING, "take", take)).deliveries
        if delivery.handoff.id != handoff_id:  # what lapsed at this very moment came before it
            for each in (delivery.handoff.id, handoff_id):
                await self.ask(ASKING, "cancel", requests.Cancel(), each)
            return
        held = Delivery(attempt=delivery.attempt, process=process, sign_at=self.host.passed_ms())
        self._held[handoff_id] = held
        if self._random.random() < (0.5 if PROCESSES[process] else 0.1):
            await self.ask(WORKING, "ack", requests.Ack(attempt=held.attempt), handoff_id)
            held.acknowledged = True

    async def _finish(self) -> None:
        if self._held:
            handoff_id = self._random.choice(list(self._held))
            await self.ask(ASKING, "cancel", requests.Cancel(), handoff_id)

    async def _set(self) -> None:
        """Set the clock on the wall, or hang it into another zone; never very far in all."""
        forth = self.host.set_ms < -2 * YEAR or (
            self.host.set_ms < 2 * YEAR and self._random.random() < 0.5
        )
        ms = self._random.choice((0, HOUR, YEAR))
        self.host.set_ms += ms if forth else -ms
        os.environ["TZ"] = self._random.choice(ZONES)
        time.tzset()

    async def _sleep(self) -> None:
        self.host.fall_asleep(self._random.choice((SECOND, 50 * SECOND, 2 * HOUR)))
        await asyncio.sleep(PIECE_MS / SECOND)

    async def _restart(self) -> None:
        await self._relay.stop()
        await asyncio.sleep(self._random.choice((0, 1, 40, 7_200)))
        await self._set()
        await self.start()

    # --- what must hold ---

    async def check(self) -> None:
        """Hold every lease that ended, and every one that has not, to what really passed."""
        for entry in await self._store.log(LogPage(team=TEAM, after=self._seq, limit=10_000)):
            self._seq = entry.seq
            if entry.type == "handoff.cancelled.v1":
                self._held.pop(entry.handoff_id or "", None)
            elif entry.type == "handoff.returned.v1":
                await self._ended(entry.handoff_id or "", entry.at - self._ahead_ms)
        for held in self._held.values():
            if not (PROCESSES[held.process] is None and held.acknowledged):
                late_ms = self.host.passed_ms() - self._due_at(held)
                assert late_ms <= self._late_ms_max(held), f"{held} is {late_ms} ms late"

    async def _ended(self, handoff_id: str, at: int) -> None:
        ended = self._held.pop(handoff_id, None)
        assert ended is not None, "a lease ended as it began: early"
        late_ms = at - self._due_at(ended)
        assert late_ms >= 0, f"the lease of {ended} ended {-late_ms} ms early"
        assert late_ms <= self._late_ms_max(ended), f"the lease of {ended} ended {late_ms} ms late"
        self.lapses += 1
        with suppress(AlreadyFinishedError):  # at the very moment at which it lapsed
            await self.ask(ASKING, "cancel", requests.Cancel(), handoff_id)

    def _due_at(self, held: Delivery) -> int:
        beat = PROCESSES[held.process]
        heard_at = self._heard_at.get(held.process, 0) if beat else 0
        return max(held.sign_at, heard_at, self._up_since) + _length_ms(held)

    def _late_ms_max(self, held: Delivery) -> int:
        """Nothing ends while the host is asleep; what is due around that time, soon after."""
        due_at, woke_at = self._due_at(held), self.host.woke_at
        # A sign that an earlier run noted for a time to come is believed when that time comes.
        earlier = PROCESSES[held.process] is not None and held.sign_at < self._up_since
        noted_ms = _length_ms(held) if earlier else 0
        if self.host.slept_at <= due_at <= woke_at + PIECE_MS:
            return max(woke_at - due_at, 0) + PIECE_MS + noted_ms
        return ROUNDING_MS + noted_ms


def _length_ms(held: Delivery) -> int:
    beat = PROCESSES[held.process]
    if beat is None:
        return 60 * SECOND
    return round((3 if held.acknowledged else 6) * beat * SECOND)


def live(clock: MakeClock, steps: int, seed: int = 0) -> int:
    """Live through so many steps; return how many leases ended."""

    async def story() -> int:
        office = Office(clock, seed)
        await office.start()
        for _ in range(steps):
            await office.step()
        return office.lapses

    return loop.run(story())


@pytest.fixture(autouse=True)
def zone() -> Generator[None]:
    with mock.patch.dict(os.environ):
        yield
    time.tzset()


@pytest.mark.timeout(max(60, STEPS // 50))
def test_no_lease_ends_early_or_never_whatever_the_wall_clock_does() -> None:
    assert live(shipped, STEPS) > STEPS / 50


# --- controls -----------------------------------------------------------------------------------


class WallClock:
    """A clock that believes the wall."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def now(self) -> int:
        return self._host.wall_ns() // 1_000_000

    async def sleep_until(self, at: int) -> None:
        while (left_ms := at - self.now()) > 0:  # noqa: ASYNC110  # what is waited for is time
            await asyncio.sleep(min(left_ms, PIECE_MS) / SECOND)

    def processor_seconds(self) -> float:
        return 0.0


@contextmanager
def unaware_of_a_clock_set_back() -> Generator[None]:
    async def long_ago(_: Loop) -> int:
        return 0

    with mock.patch.object(Loop, "_last_at", long_ago):
        yield


def test_a_clock_that_follows_the_wall_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"early|late"):
        live(WallClock, 1_000)


@pytest.mark.parametrize(
    ("control", "noticed"),
    [
        (unaware_of_a_clock_set_back, "late"),
        (mutations.no_grace, r"early|late"),
        (mutations.deaf_to_silence, "late"),
    ],
)
def test_a_relay_that_miscounts_is_noticed(
    control: Callable[[], AbstractContextManager[Any]], noticed: str
) -> None:
    with control(), pytest.raises(AssertionError, match=noticed):
        live(shipped, 1_000)
