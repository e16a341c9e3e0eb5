"""A thousand events, each told twice, with the relay killed in between.

Once with commits that fail in every way there is, once with a process and kill -9.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nodrop import app
from nodrop.client.client import Client
from nodrop.log.memory import MemoryStore
from nodrop.model.errors import NodropError
from nodrop.relay.batch import Batch
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock
from nodrop_proof.chaos.callers import connected
from nodrop_proof.chaos.relay_process import RelayProcess
from nodrop_proof.kit.faulty import Fault, FaultyStore

EVENTS = 1_000
RULES = ("all", "even")
PATIENCE_SECONDS = 50
AT_ONCE = 100
KILLS = 5


def _expected() -> list[str]:
    return [f"all {n}" for n in range(EVENTS)] + [f"even {n}" for n in range(0, EVENTS, 2)]


async def test_every_event_is_handed_off_exactly_once_per_rule(tmp_path: Path) -> None:
    assert sorted(await _storm(tmp_path)) == sorted(_expected())


async def test_the_storm_notices_rules_that_forget_what_they_fired_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(*_: object) -> None:
        """Remember nothing."""

    monkeypatch.setattr(Batch, "use_key", forget)
    assert len(await _storm(tmp_path)) > len(_expected())


@pytest.mark.timeout(180)  # real processes, on a machine that does other things too
async def test_a_relay_that_is_killed_with_events_on_their_way_hands_each_off_once(
    tmp_path: Path,
) -> None:
    dice = random.Random(7)
    told = _twice(dice)
    places = range(0, len(told), AT_ONCE)
    kills = set(dice.sample(places, KILLS))
    async with RelayProcess(tmp_path / "relay") as relay, connected(relay, count=2) as tellers:
        async with relay.operator() as me:
            await _put_rules(me)
        for start in places:
            telling = asyncio.gather(
                *(
                    dice.choice(tellers).emit("counted", {"n": n}, event_id=f"e{n}")
                    for n in told[start : start + AT_ONCE]
                )
            )
            if start in kills:
                await asyncio.sleep(dice.uniform(0, 0.05))
                await relay.kill()
                await relay.start()
            await telling
        async with relay.operator() as me:
            assert sorted(await _titles(me)) == sorted(_expected())


def _twice(dice: random.Random) -> list[int]:
    told = [n for n in range(EVENTS) for _ in range(2)]
    dice.shuffle(told)
    return told


async def _storm(tmp_path: Path) -> list[str]:
    """Return the titles of what was handed off."""
    store, dice = MemoryStore(), random.Random(6)
    told = _twice(dice)
    clock = FakeClock()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await _set_rules(store, clock, tmp_path)
        left = told
        for _ in range(20):
            left = await _told_until_killed(store, clock, tmp_path, left, dice)
            if not left:
                break
        assert not left, "the relay came up often enough"
        return await _handed_off(store, clock, tmp_path)


async def _set_rules(store: Any, clock: FakeClock, home: Path) -> None:
    async with _relay(store, clock, home) as relay:
        await _put_rules(await _member(relay, "me", "operator"))


async def _put_rules(me: InProcessTransport | Client) -> None:
    for name, when in zip(RULES, ("true", "event.data.n % 2 == 0"), strict=True):
        offer = {"to": "worker", "title": f"{name} ${{event.data.n}}"}
        await me.call("put_trigger", {"on": "counted", "when": when, "offer": offer}, name=name)


async def _told_until_killed(
    store: Any, clock: FakeClock, home: Path, told: list[int], dice: random.Random
) -> list[int]:
    """Tell events, many at once, until a commit kills the relay; return what is still to be told."""
    faulty = FaultyStore(store)
    async with _relay(faulty, clock, home) as relay:
        tellers = [await _member(relay, name, "agent") for name in ("teller", "other")]
        for start in range(0, len(told), AT_ONCE):
            if dice.random() < 0.3:
                faulty.fail_next(dice.choice((Fault.BEFORE_COMMIT, Fault.AFTER_COMMIT)))
            some = told[start : start + AT_ONCE]
            answers = await asyncio.gather(
                *(
                    dice.choice(tellers).call(
                        "emit", {"type": "counted", "event_id": f"e{n}", "data": {"n": n}}
                    )
                    for n in some
                ),
                return_exceptions=True,
            )
            failed = [n for n, a in zip(some, answers, strict=True) if isinstance(a, NodropError)]
            if failed:
                return failed + told[start + AT_ONCE :]
    return []


async def _handed_off(store: Any, clock: FakeClock, home: Path) -> list[str]:
    async with _relay(store, clock, home) as relay:
        return await _titles(await _member(relay, "me", "operator"))


async def _titles(me: InProcessTransport | Client) -> list[str]:
    titles: list[str] = []
    before: str | None = None
    while True:
        fields = {"limit": 500} | ({"before": before} if before else {})
        page = (await me.call("list_handoffs", fields))["handoffs"]
        if not page:
            return titles
        titles += [handoff["title"] for handoff in page]
        before = page[-1]["id"]


@asynccontextmanager
async def _relay(store: Any, clock: FakeClock, home: Path) -> AsyncGenerator[Relay]:
    signer = app.KeyFile(home / "relay.pem")
    relay = await Relay.start(store, clock=clock, ids=app.SystemIds(), signer=signer)
    await relay.ensure_team("default")
    try:
        yield relay
    finally:
        await relay.stop()


async def _member(relay: Any, name: str, role: str) -> InProcessTransport:
    secret = f"nd_{name}_secret"
    await relay.ensure_token("default", agent=name, role=role, secret=secret)
    return InProcessTransport(relay, await relay.authenticate(secret))
