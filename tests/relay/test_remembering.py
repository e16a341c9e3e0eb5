"""Keys and command ids after a week: remembered as promised, to the millisecond, over prunes and starts."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from nodrop import app
from nodrop.model.errors import AlreadyFinishedError, IdempotencyConflictError
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

DAY = 86_400_000
WEEK = 7 * DAY
"""As section 6 of the protocol promises."""
KEYED = {"to": "worker", "payload": {"n": 1}, "idempotency_key": "k1", "deadline": "365d"}
OTHER = {**KEYED, "payload": {"n": 2}}
NAMED = {"to": "worker", "payload": {"n": 1}, "command_id": "c1", "deadline": "365d"}


class Team:
    """A relay on one database, its clock, and its agents."""

    def __init__(self, database: str | Path, home: Path) -> None:
        self.clock = FakeClock()
        self._database = database
        self._home = home
        self._stack = AsyncExitStack()
        self.relay: Relay

    async def open(self) -> None:
        opened = app.open_relay(self._database, home=self._home, clock=self.clock)
        self.relay = await self._stack.enter_async_context(opened)

    async def close(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        if self._database != ":memory:":
            await self.close()
            await self.open()

    async def call(
        self, agent: str, operation: str, fields: dict[str, Any], handoff: str | None = None
    ) -> Any:
        await self.relay.ensure_token("default", agent=agent, role="agent", secret=f"nd_{agent}")
        caller = await self.relay.authenticate(f"nd_{agent}")
        return await InProcessTransport(self.relay, caller).call(operation, fields, handoff=handoff)

    async def offer(self, fields: dict[str, Any]) -> tuple[str, bool]:
        """Return the handoff that an offer is, and whether it was there before."""
        answer = await self.call("asker", "offer", fields)
        return answer["handoff"]["id"], answer.get("replayed", False)

    async def settled(self, fields: dict[str, Any]) -> str:
        """Return a handoff that is over: it was offered a day ago, and is settled now."""
        made, _ = await self.offer(fields)
        self.clock.advance(DAY)
        await self.call("worker", "ack", {}, made)
        await self.call("worker", "complete", {"attempt": 1, "result": 1}, made)
        await self.call("asker", "settle", {}, made)
        return made

    async def prune(self, older_than_ms: int = 0) -> int:
        await self.call("asker", "note_team", {"text": "what is the last entry is never pruned"})
        return await self.relay.prune("default", older_than_ms=older_than_ms)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def team(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Team]:
    database: dict[str, Callable[[], str | Path]] = {
        "memory": lambda: ":memory:",
        "sqlite": lambda: tmp_path / "team.db",
        "postgres": lambda: request.getfixturevalue("database"),
    }
    team = Team(database[request.param](), tmp_path)
    await team.open()
    yield team
    await team.close()


# --- keys: as long as their handoff is not settled, and a week past that ---


async def test_a_key_is_known_within_a_week_of_settlement(team: Team) -> None:
    made = await team.settled(KEYED)
    for passes in (1, DAY, 5 * DAY, DAY - 2):
        team.clock.advance(passes)
        await team.prune()
        assert await team.offer(KEYED) == (made, True)
    with pytest.raises(IdempotencyConflictError):
        await team.offer(OTHER)


async def test_a_key_after_a_week_and_a_prune_begins_a_new_handoff(team: Team) -> None:
    made = await team.settled(KEYED)
    team.clock.advance(WEEK)
    await team.prune()
    assert await team.offer(KEYED) == (made, True), "the week is over with its last millisecond"
    team.clock.advance(1)
    assert await team.prune() > 0
    again, replayed = await team.offer(OTHER)
    assert (again != made, replayed) == (True, False)
    assert await team.offer(OTHER) == (again, True)


async def test_a_key_of_what_is_not_settled_is_known_however_old_it_is(team: Team) -> None:
    made, _ = await team.offer(KEYED)
    team.clock.advance(100 * DAY)
    assert await team.prune() > 0
    assert await team.offer(KEYED) == (made, True)
    with pytest.raises(IdempotencyConflictError):
        await team.offer(OTHER)


async def test_retention_may_lengthen_the_promise_and_not_shorten_it(team: Team) -> None:
    made = await team.settled(KEYED)
    team.clock.advance(WEEK - 1)
    await team.prune(older_than_ms=0)
    assert await team.offer(KEYED) == (made, True)
    team.clock.advance(30 * DAY)
    await team.prune(older_than_ms=60 * DAY)
    assert await team.offer(KEYED) == (made, True)


async def test_without_the_bound_a_short_retention_would_forget_too_soon(team: Team) -> None:
    """CONTROL: it is the relay that keeps the promise, whatever an operator prunes."""
    made = await team.settled(KEYED)
    team.clock.advance(2 * DAY)
    bound = mock.patch.object(team.relay, "limits", replace(team.relay.limits, remember_ms=DAY))
    with bound:
        await team.prune()
    again, replayed = await team.offer(KEYED)
    assert (again != made, replayed) == (True, False)


# --- command ids: a week past their command ---


async def test_a_command_id_is_known_for_a_week(team: Team) -> None:
    made, _ = await team.offer(NAMED)
    for passes in (1, DAY, 6 * DAY - 2):
        team.clock.advance(passes)
        await team.prune()
        assert (await team.offer(NAMED))[0] == made
    with pytest.raises(IdempotencyConflictError):
        await team.offer({**NAMED, "payload": {"n": 2}})


async def test_a_command_id_after_a_week_and_a_prune_names_a_new_command(team: Team) -> None:
    made, _ = await team.offer(NAMED)
    team.clock.advance(WEEK + 1)
    assert await team.prune() > 0
    assert (await team.offer({**NAMED, "payload": {"n": 2}}))[0] != made


async def test_an_end_that_is_told_again_is_never_a_second_one(team: Team) -> None:
    made, _ = await team.offer(KEYED)
    await team.call("worker", "ack", {"command_id": "ack-1"}, made)
    done = {"attempt": 1, "result": 1, "command_id": "done-1"}
    await team.call("worker", "complete", done, made)
    team.clock.advance(WEEK - 1)
    await team.prune()
    assert (await team.call("worker", "complete", done, made))["handoff"]["state"] == "completed"
    with pytest.raises(IdempotencyConflictError):
        await team.call("worker", "complete", {**done, "result": 2}, made)
    team.clock.advance(2)
    await team.prune()
    with pytest.raises(AlreadyFinishedError):
        await team.call("worker", "complete", {**done, "result": 2}, made)


async def test_what_is_remembered_survives_a_start(team: Team) -> None:
    made = await team.settled(KEYED)
    named, _ = await team.offer(NAMED)
    team.clock.advance(WEEK - 1)
    await team.prune()
    await team.restart()
    assert await team.offer(KEYED) == (made, True)
    assert (await team.offer(NAMED))[0] == named
