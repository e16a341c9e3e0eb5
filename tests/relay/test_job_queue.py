"""The queue of commands that wait for a commit: agents take turns, and each keeps its order."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Key, Store, Wanted
from nodrop.model.errors import QueueFullError
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol import requests
from nodrop.relay.engine import JobQueue
from nodrop.relay.jobs import FunctionJob, Job
from nodrop.relay.relay import Caller, Relay

ALICE, BOB = ("default", "alice"), ("default", "bob")


def job(by: Key | None) -> Job[Any]:
    return FunctionJob(Wanted(), lambda _: None, by=by)


def test_one_command_of_another_agent_goes_into_the_next_batch() -> None:
    line = JobQueue()
    for _ in range(1_000):
        line.append(job(ALICE))
    late = job(BOB)
    line.append(late)
    assert late in line.take(2)
    assert line.count == 999


def test_the_commands_of_one_agent_keep_their_order() -> None:
    line = JobQueue()
    first, second, third = job(ALICE), job(ALICE), job(ALICE)
    for each in (first, job(BOB), second, job(None), third):
        line.append(each)
    taken = [each for _ in range(3) for each in line.take(2)]
    assert [each for each in taken if each.by == ALICE] == [first, second, third]
    assert line.count == 0
    assert list(line) == []


def test_agents_take_turns_whether_or_not_a_batch_has_room_for_all() -> None:
    of_alice, of_bob, own = [job(ALICE) for _ in range(3)], [job(BOB) for _ in range(2)], job(None)
    in_turn = [of_alice[0], of_bob[0], own, of_alice[1], of_bob[1], of_alice[2]]
    for most in range(1, 8):
        line = JobQueue()
        for each in (*of_alice, *of_bob, own):
            line.append(each)
        first = line.take(most)
        assert first == in_turn[:most]
        assert line.count == len(in_turn) - len(first)
        assert first + line.take(line.count) == in_turn


async def test_an_agent_with_too_many_commands_is_refused_and_others_are_not(
    started: Callable[[Store, Limits], Awaitable[Relay]],
) -> None:
    limits = msgspec.structs.replace(DEFAULT, queue_commands_per_agent_max=1)
    relay = await started(MemoryStore(), limits)
    await relay.ensure_team("default")
    note = requests.Note(text="at the same moment")
    told = await asyncio.gather(
        *(
            relay.call(Caller(team="default", agent=agent), "note_team", note)
            for agent in ("mallory", "mallory", "alice")
        ),
        return_exceptions=True,
    )
    assert [isinstance(answer, QueueFullError) for answer in told] == [False, True, False]
