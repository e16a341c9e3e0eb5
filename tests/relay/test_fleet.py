"""Several relays on one PostgreSQL database: any of them serves any agent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from kit import mutations
from nodrop import app
from nodrop.log.port import Attending, Changes, ConflictError, Record, Roll, Token
from nodrop.log.postgres import PostgresFleet, PostgresStore, writing
from nodrop.model.contract import Agent
from nodrop.model.errors import (
    AlreadyFinishedError,
    LinkInvalidError,
    NodropError,
    StaleAttemptError,
    UnauthenticatedError,
)
from nodrop.model.limits import MINUTE, SECOND
from nodrop.protocol import requests, views
from nodrop.protocol.coordination import trigger_requests
from nodrop.protocol.times import parse_time
from nodrop.relay.handoffs import erasing
from nodrop.relay.relay import Asking, Caller, Relay, Reply, stranger
from nodrop.testing.clock import FakeClock
from nodrop_proof.kit.postgres_server import PostgresServer

SECONDS_MAX: Final = 30.0
"""More than any of this takes; who waits longer has found something."""
SENDER = Caller(team="default", agent="inbox_monitor")
WORKER = Caller(team="default", agent="code_agent")
PERSON = Caller(team="default", agent="me", operator=True)


@pytest.fixture
def clock(postgres: PostgresServer) -> FakeClock:
    """Begins at the database's time: since when there are relays is told by that."""
    return FakeClock(int(postgres.run("select (extract(epoch from now()) * 1000)::bigint")))


@pytest.fixture
async def start(
    database: str, tmp_path: Path, clock: FakeClock
) -> AsyncIterator[Callable[[], Awaitable[Relay]]]:
    """Start one more relay on the database."""
    async with AsyncExitStack() as stack:

        async def start() -> Relay:
            opened = app.open_relay(database, home=tmp_path, clock=clock)
            return await stack.enter_async_context(opened)

        yield start


@pytest.fixture
async def here(start: Callable[[], Awaitable[Relay]]) -> Relay:
    return await start()


@pytest.fixture
async def there(here: Relay, start: Callable[[], Awaitable[Relay]]) -> Relay:
    del here  # one after the other
    return await start()


async def ask(
    relay: Relay, caller: Caller, operation: str, request: requests.Request, handoff: str = ""
) -> Any:
    async with asyncio.timeout(SECONDS_MAX):
        reply = await relay.call(caller, operation, request, reference=handoff or None)
    return reply.answer


class Asked(Asking):
    """An operation that is asked for, and what came of it."""

    def __init__(self, caller: Caller, operation: str, request: requests.Request) -> None:
        super().__init__(caller, operation, request)
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def tell(self, reply: Reply) -> None:
        self.reply.set_result(reply)

    def refuse(self, error: NodropError) -> None:
        self.reply.set_exception(error)


async def offer(relay: Relay, **fields: Any) -> str:
    answer = await ask(relay, SENDER, "offer", requests.Offer(to="code_agent", **fields))
    assert isinstance(answer, views.HandoffAnswer)
    return answer.handoff.id


async def types(relay: Relay) -> list[str]:
    log = await ask(relay, PERSON, "log", requests.GetLog(type="handoff.*"))
    return [entry.type for entry in log.entries]


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await true():  # noqa: ASYNC110  # another relay has no event to wait for
            await asyncio.sleep(0.01)


async def test_who_waits_at_one_relay_is_given_what_is_offered_at_another(
    here: Relay, there: Relay
) -> None:
    waiting = asyncio.create_task(ask(there, WORKER, "take", requests.Take(wait=20)))
    await asyncio.sleep(0)
    handoff = await offer(here)
    taken = await waiting
    assert [delivery.handoff.id for delivery in taken.deliveries] == [handoff]


async def test_an_outcome_reaches_who_waits_for_it_at_another_relay(
    here: Relay, there: Relay
) -> None:
    handoff = await offer(here)
    wait = requests.GetHandoff(wait=20, until="finished")
    waiting = asyncio.create_task(ask(here, SENDER, "get_handoff", wait, handoff))
    await ask(there, WORKER, "ack", requests.Ack(), handoff)
    await ask(there, WORKER, "complete", requests.Complete(attempt=1, result={"n": 1}), handoff)
    answer = await waiting
    assert answer.handoff.state == "completed"
    assert not answer.wait_elapsed


async def test_every_relay_learns_how_an_agent_does_its_work(here: Relay, there: Relay) -> None:
    """Also where the outcome was known to the requester, and settled, in the commit that made it."""
    manifest = msgspec.Raw(b'{"agent_id": "code_agent", "capabilities": [{"name": "triage"}]}')
    register = requests.Register(agent="code_agent", manifest=manifest)
    await here.call(WORKER, "register", register, name="code_agent")
    handoff = await offer(here, capability="triage")
    wait = requests.GetHandoff(wait=20, until="finished")
    waiting = asyncio.create_task(ask(here, SENDER, "get_handoff", wait, handoff))
    await ask(here, WORKER, "ack", requests.Ack(), handoff)
    await ask(here, WORKER, "complete", requests.Complete(attempt=1), handoff)
    await waiting
    assert (await types(here))[-1] != "handoff.completed.v1"

    async def known() -> bool:
        found = await ask(there, SENDER, "agents", requests.ListAgents(capability="triage"))
        return [agent.offers[0].observed.n for agent in found.agents] == [1]

    await until(known)


async def test_one_command_sent_to_two_relays_at_once_is_carried_out_once(
    here: Relay, there: Relay
) -> None:
    for number in range(10):
        same = requests.Offer(to="code_agent", command_id=f"c{number}")
        answers = await asyncio.gather(*(ask(r, SENDER, "offer", same) for r in (here, there)))
        assert len({answer.handoff.id for answer in answers}) == 1
    assert (await types(here)).count("handoff.offered.v1") == 10


@pytest.mark.parametrize(("join", "needed"), [("all", 8), ("any", 1), ("quorum", 5)])
async def test_members_that_finish_at_the_same_moment_at_two_relays_close_a_group_once(
    here: Relay, there: Relay, join: str, needed: int
) -> None:
    labels = [f"m{number}" for number in range(8)]
    group = await ask(
        here,
        SENDER,
        "offer_group",
        requests.OfferGroup(
            offers={label: requests.Offer(to="code_agent", title=label) for label in labels},
            join=join,
            quorum=needed if join == "quorum" else None,
        ),
    )
    taken = await ask(there, WORKER, "take", requests.Take(max=len(labels)))
    for d in taken.deliveries:
        await ask(there, WORKER, "ack", requests.Ack(attempt=d.attempt), d.handoff.id)

    async def complete(relay: Relay, d: views.DeliveryView) -> bool:
        done = requests.Complete(attempt=d.attempt, result=d.handoff.title)
        try:
            await ask(relay, WORKER, "complete", done, d.handoff.id)
        except (AlreadyFinishedError, StaleAttemptError):
            return False  # enough others were done, and it was called off
        return True

    done = await asyncio.gather(
        *(complete((here, there)[n % 2], d) for n, d in enumerate(taken.deliveries))
    )
    taken_in = {str(d.handoff.title) for d, ok in zip(taken.deliveries, done, strict=True) if ok}
    assert len(taken_in) >= needed
    (ended,) = [
        entry
        for entry in (await ask(here, PERSON, "log", requests.GetLog(limit=200))).entries
        if entry.handoff_id == group.group.id and entry.type == "handoff.completed.v1"
    ]
    for relay in (here, there):
        shown = await ask(relay, PERSON, "get_handoff", requests.GetHandoff(), ended.handoff_id)
        assert shown.handoff.state == "completed"
        results = msgspec.json.decode(msgspec.json.encode(shown.handoff.outcome.result))
        assert results == {label: label for label in taken_in}, "whoever was heard is counted"


async def test_of_two_relays_one_gives_a_handoff_out(here: Relay, there: Relay) -> None:
    """Whoever is first: nothing is delivered twice, and nothing stays."""
    handoffs = {await offer(here) for _ in range(20)}
    taken: list[str] = []
    while len(taken) < len(handoffs):
        answers = await asyncio.gather(
            *(ask(r, WORKER, "take", requests.Take(max=3)) for r in (here, there))
        )
        taken += [d.handoff.id for answer in answers for d in answer.deliveries]
    assert sorted(taken) == sorted(handoffs)


async def test_a_clock_runs_out_once_whatever_the_number_of_relays(
    here: Relay, start: Callable[[], Awaitable[Relay]], clock: FakeClock
) -> None:
    relays = [here, await start(), await start()]
    for relay in relays:
        await offer(relay, deadline=60)
    clock.advance(61 * SECOND)

    async def expired() -> bool:
        return (await types(here)).count("handoff.expired.v1") >= 3

    await until(expired)
    for relay in relays:
        await offer(relay)  # whatever else was to happen has happened before this
    assert (await types(here)).count("handoff.expired.v1") == 3


async def test_what_a_silent_process_held_at_a_relay_that_is_gone_is_taken_back(
    here: Relay, database: str, tmp_path: Path, clock: FakeClock
) -> None:
    async with app.open_relay(database, home=tmp_path, clock=clock) as gone:
        handoff = await offer(gone)
        take = requests.Take(process="p", heartbeat_seconds=10)
        assert (await ask(gone, WORKER, "take", take)).deliveries
    clock.advance(5 * MINUTE)

    async def taken_back() -> bool:
        return "handoff.returned.v1" in await types(here)

    await until(taken_back)
    clock.advance(10 * SECOND)  # a retry waits a little
    again = await ask(here, WORKER, "take", requests.Take(wait=20))
    assert [delivery.handoff.id for delivery in again.deliveries] == [handoff]


async def test_a_process_that_is_heard_of_at_another_relay_keeps_what_it_holds(
    here: Relay, there: Relay, clock: FakeClock
) -> None:
    handoff = await offer(here)
    take = requests.Take(process="p", heartbeat_seconds=10)
    assert (await ask(here, WORKER, "take", take)).deliveries
    for _ in range(8):
        clock.advance(9 * SECOND)
        held = await ask(there, WORKER, "heartbeat", requests.Heartbeat(process="p"))
        assert [handoff_id for handoff_id, _ in held.held] == [handoff]
    assert not {"handoff.returned.v1", "handoff.reclaimed.v1"} & set(await types(here))


async def both_busy(here: Relay, there: Relay) -> list[str]:
    """Two processes of one agent, one at each relay, each with something; and three that wait."""
    handoffs = [await offer((here, there)[n % 2], title=f"bug {n}") for n in range(5)]
    for process, relay in (("p", here), ("q", there)):
        take = requests.Take(process=process, heartbeat_seconds=10)
        [delivery] = (await ask(relay, WORKER, "take", take)).deliveries
        ack = requests.Ack(attempt=delivery.attempt)
        await ask(relay, WORKER, "ack", ack, delivery.handoff.id)
    return handoffs[2:]


async def places(relay: Relay, handoffs: Sequence[str]) -> list[tuple[int, int] | None]:
    """Where handoffs are in the queue of their agent, and of how many."""
    found: list[tuple[int, int] | None] = []
    for handoff in handoffs:
        shown = await ask(relay, PERSON, "get_handoff", requests.GetHandoff(), handoff)
        ack = shown.handoff.ack
        found.append((ack.position, ack.of) if ack is not None and ack.queued else None)
    return found


async def test_positions_are_of_the_one_queue_that_processes_at_two_relays_share(
    here: Relay, there: Relay
) -> None:
    waiting = await both_busy(here, there)
    queued = requests.Ack(queued=True)
    for number, handoff in enumerate(waiting):
        await ask((there, here)[number % 2], WORKER, "ack", queued, handoff)

    async def agreed(*expected: tuple[int, int] | None) -> None:
        for relay in (here, there):

            async def seen(relay: Relay = relay) -> bool:
                return await places(relay, waiting) == list(expected)

            await until(seen)

    await agreed((3, 5), (4, 5), (5, 5))
    held = await ask(there, WORKER, "heartbeat", requests.Heartbeat(process="q"))
    [(working, attempt)] = held.held
    await ask(there, WORKER, "complete", requests.Complete(attempt=attempt), working)
    await agreed((2, 4), (3, 4), (4, 4))
    take = requests.Take(process="q", heartbeat_seconds=10)
    [delivery] = (await ask(there, WORKER, "take", take)).deliveries
    assert delivery.handoff.id == waiting[0]
    await agreed(None, (3, 4), (4, 4))
    # If a process at one relay has it, one at the other is told so, and nothing is recorded.
    late = await ask(here, WORKER, "ack", queued, waiting[0])
    assert (late.handoff.state, late.handoff.ack.queued) == ("delivered", False)
    assert (await types(here)).count("handoff.queued.v1") == 3


async def test_what_is_queued_is_void_once_when_the_agent_is_silent_at_all_relays(
    here: Relay, there: Relay, clock: FakeClock
) -> None:
    manifest = msgspec.Raw(b'{"agent_id": "code_agent", "capabilities": []}')
    register = requests.Register(agent="code_agent", manifest=manifest)
    await here.call(WORKER, "register", register, name="code_agent")
    waiting = await both_busy(here, there)
    for handoff in waiting:
        await ask(here, WORKER, "ack", requests.Ack(queued=True), handoff)

    async def known() -> bool:
        found = await ask(here, PERSON, "agents", requests.ListAgents())
        [seen_at] = [a.seen_at for a in found.agents if a.agent_id == "code_agent"]
        return parse_time(seen_at) > clock.now() - 20 * SECOND

    for _ in range(8):  # more than a minute, in which only the other relay hears of it
        clock.advance(9 * SECOND)
        await ask(there, WORKER, "heartbeat", requests.Heartbeat(process="q"))
        await until(known)
    for relay in (here, there):
        await offer(relay)  # whatever else was to happen has happened before this
    assert "handoff.queue_lapsed.v1" not in await types(here)
    clock.advance(61 * SECOND)

    async def void() -> bool:
        return (await types(here)).count("handoff.queue_lapsed.v1") >= len(waiting)

    await until(void)
    for relay in (here, there):
        await offer(relay)
        assert await places(relay, waiting) == [None] * 3
    assert (await types(here)).count("handoff.queue_lapsed.v1") == len(waiting)


async def test_what_is_queued_through_a_relay_that_is_gone_is_void_at_another(
    here: Relay, database: str, tmp_path: Path, clock: FakeClock
) -> None:
    async with app.open_relay(database, home=tmp_path, clock=clock) as gone:
        handoff = await offer(gone)
        await ask(gone, WORKER, "ack", requests.Ack(queued=True), handoff)
    clock.advance(61 * SECOND)

    async def void() -> bool:
        return "handoff.queue_lapsed.v1" in await types(here)

    await until(void)
    assert await places(here, [handoff]) == [None]


async def test_control_where_it_is_never_void_all_relays_hold_on(
    here: Relay, there: Relay, clock: FakeClock
) -> None:
    with mutations.never_void():
        waiting = await both_busy(here, there)
        for handoff in waiting:
            await ask(here, WORKER, "ack", requests.Ack(queued=True), handoff)
        await offer(here, deadline=60)
        clock.advance(5 * MINUTE)

        async def expired() -> bool:
            return "handoff.expired.v1" in await types(there)

        await until(expired)
        assert "handoff.queue_lapsed.v1" not in await types(there)


async def test_a_token_that_is_revoked_at_one_relay_is_good_at_none(
    here: Relay, there: Relay
) -> None:
    made = await ask(here, PERSON, "create_token", requests.CreateToken(agent="code_agent"))

    async def known() -> bool:
        try:
            await there.authenticate(made.token)
        except UnauthenticatedError:
            return False
        return True

    async def unknown() -> bool:
        return not await known()

    await until(known)
    async with asyncio.timeout(SECONDS_MAX):
        await here.call(
            PERSON, "revoke_token", requests.RevokeToken(token_id=made.token_id), name=made.token_id
        )
    await until(unknown)


async def test_a_token_made_at_one_relay_is_good_at_another_at_once(
    here: Relay, there: Relay
) -> None:
    for number in range(10):
        made = await ask(here, PERSON, "create_token", requests.CreateToken(agent=f"a{number}"))
        caller = await there.authenticate(made.token)
        assert caller.agent == f"a{number}"


async def test_a_sign_in_link_made_at_one_relay_is_redeemed_once_at_all_of_them(
    here: Relay, there: Relay
) -> None:
    anyone = stranger(None, address="127.0.0.1")
    for _ in range(5):
        made = await ask(here, PERSON, "create_link", requests.CreateLink())
        code = requests.RedeemLink(code=made.code)
        both = await asyncio.gather(
            *(ask(relay, anyone, "redeem_link", code) for relay in (here, there)),
            return_exceptions=True,
        )
        assert sorted(isinstance(answer, LinkInvalidError) for answer in both) == [False, True]
        [signed_in] = [answer for answer in both if not isinstance(answer, BaseException)]
        for relay in (here, there):
            caller = await relay.authenticate(signed_in.token)
            assert (caller.agent, caller.operator) == ("me", True)


async def test_a_stranger_is_one_at_every_relay(here: Relay, there: Relay) -> None:
    del here
    refused = await asyncio.gather(
        *(there.authenticate(f"nd_{number}") for number in range(20)), return_exceptions=True
    )
    assert {type(error) for error in refused} == {UnauthenticatedError}


async def test_an_agent_that_joins_at_one_relay_is_found_at_another(
    here: Relay, there: Relay
) -> None:
    manifest = msgspec.Raw(b'{"agent_id": "code_agent", "capabilities": [{"name": "triage"}]}')
    async with asyncio.timeout(SECONDS_MAX):
        register = requests.Register(agent="code_agent", manifest=manifest)
        await here.call(WORKER, "register", register, name="code_agent")

    async def found() -> bool:
        try:
            answer = await ask(there, SENDER, "offer", requests.Offer(capability="triage"))
        except NodropError:
            return False
        return answer.handoff.to == "code_agent"

    await until(found)


async def test_an_agent_connected_to_one_relay_is_awake_to_all(here: Relay, there: Relay) -> None:
    manifest = msgspec.Raw(b'{"agent_id": "code_agent", "capabilities": [{"name": "triage"}]}')
    async with asyncio.timeout(SECONDS_MAX):
        register = requests.Register(agent="code_agent", manifest=manifest)
        await here.call(WORKER, "register", register, name="code_agent")
    subscription = here.subscribe(WORKER, process="p", heartbeat_seconds=10, deliver=lambda _: None)

    async def idle() -> bool:
        found = await ask(there, SENDER, "agents", requests.ListAgents())
        return [a.presence for a in found.agents if a.agent_id == "code_agent"] == ["idle"]

    await until(idle)
    subscription.close()


async def test_what_is_decided_again_for_another_command_is_not_left_in_doubt(
    here: Relay, there: Relay
) -> None:
    sent = requests.Offer(to="code_agent", command_id="sent to both")
    first = await ask(there, SENDER, "offer", sent)
    # In one batch: that the command was carried out is found when the batch is written.
    again, policy = await asyncio.gather(
        ask(here, SENDER, "offer", sent),
        ask(here, PERSON, "set_policy", requests.SetPolicy(signatures="required")),
    )
    assert again.handoff.id == first.handoff.id
    assert policy.signatures == "required"


async def test_what_a_relay_changes_in_one_team_stands_while_it_hears_of_another(
    here: Relay, there: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.ensure_team("other")
    other = Caller(team="other", agent="me", operator=True)
    made = await ask(here, other, "create_token", requests.CreateToken(agent="code_agent"))
    reading, read = asyncio.Event(), asyncio.Event()
    tokens = PostgresStore.tokens

    async def slow_tokens(store: PostgresStore, team: str | None = None) -> Sequence[Token]:
        found = await tokens(store, team)
        reading.set()
        await read.wait()
        return found

    monkeypatch.setattr(PostgresStore, "tokens", slow_tokens)
    monkeypatch.setattr(writing, "told_in", silence)  # so that everything is read
    await ask(there, PERSON, "create_token", requests.CreateToken(agent="inbox_monitor"))
    async with asyncio.timeout(SECONDS_MAX):
        await reading.wait()
        revoke = requests.RevokeToken(token_id=made.token_id)
        await here.call(other, "revoke_token", revoke, name=made.token_id)
    read.set()
    with pytest.raises(UnauthenticatedError):
        await here.authenticate(made.token)


@pytest.mark.parametrize("told", [True, False])
async def test_what_changed_in_a_team_is_read_again_and_everything_only_where_nobody_tells(
    here: Relay, there: Relay, monkeypatch: pytest.MonkeyPatch, *, told: bool
) -> None:
    """What is known in the end is the same."""
    if not told:
        monkeypatch.setattr(writing, "told_in", silence)
    agents, read = PostgresStore.agents, list[str]()

    async def counted(store: PostgresStore, team: str) -> Sequence[tuple[Agent, bytes]]:
        read.append(team)
        return await agents(store, team)

    monkeypatch.setattr(PostgresStore, "agents", counted)
    made = await ask(here, PERSON, "create_token", requests.CreateToken(agent="code_agent"))
    kept = await ask(here, PERSON, "create_token", requests.CreateToken(agent="inbox_monitor"))
    manifest = msgspec.Raw(b'{"agent_id": "code_agent", "capabilities": [{"name": "triage"}]}')
    register = requests.Register(agent="code_agent", manifest=manifest)
    await here.call(WORKER, "register", register, name="code_agent")
    await here.call(
        PERSON, "revoke_token", requests.RevokeToken(token_id=made.token_id), name=made.token_id
    )
    rule = trigger_requests.PutTrigger(on="mail", offer=requests.Offer(to="code_agent"))
    await here.call(PERSON, "put_trigger", rule, name="mail")
    await here.call(PERSON, "remove_trigger", trigger_requests.RemoveTrigger(), name="mail")
    await here.call(PERSON, "put_trigger", rule, name="post")
    await ask(here, PERSON, "set_policy", requests.SetPolicy(signatures="required"))

    async def known() -> bool:
        policy = await ask(there, PERSON, "get_policy", requests.GetPolicy())
        return policy.signatures == "required"

    await until(known)
    found = await ask(there, SENDER, "agents", requests.ListAgents(capability="triage"))
    assert [agent.agent_id for agent in found.agents] == ["code_agent"]
    assert (await there.authenticate(kept.token)).agent == "inbox_monitor"
    with pytest.raises(UnauthenticatedError):
        await there.authenticate(made.token)
    rules = await ask(there, PERSON, "triggers", trigger_requests.ListTriggers())
    assert [rule.name for rule in rules.triggers] == ["post"]
    assert bool(read) is not told


def silence(*_: Any) -> str:
    """Tell nobody what has changed."""
    return ""


class Looks:
    """Delivers to agents elsewhere, and says when it was told to look at them."""

    def __init__(self) -> None:
        self.looked = asyncio.Event()

    def reach_changed(self) -> None:
        self.looked.set()

    async def check(self, address: str) -> None:
        raise AssertionError(f"{address} is private, and an operator allowed it")


async def test_an_agent_that_lives_elsewhere_is_carried_to_by_every_relay(
    here: Relay, there: Relay
) -> None:
    carrier = Looks()
    reach = requests.SetReach(a2a="https://agent.example/", private=True)
    with there.reaches.carried(carrier):
        async with asyncio.timeout(SECONDS_MAX):
            await here.call(PERSON, "set_reach", reach, name="far_agent")
            await carrier.looked.wait()
    assert [known.agent for known in there.reaches.elsewhere()] == ["far_agent"]


async def test_what_a_relay_that_is_gone_was_to_erase_another_erases(
    here: Relay, there: Relay, database: str, postgres: PostgresServer
) -> None:
    handoff = await offer(there, payload={"secret": 1})
    # Decided and written down, and then its relay is gone.
    intended = Record(team="default", kind=erasing.KIND, id=handoff, json=b"{}")
    async with await PostgresStore.open(database) as store, store.transaction() as unit:
        await unit.append(Changes(records=[intended]))
    await here.stop()

    async def erased() -> bool:
        shown = await ask(there, SENDER, "get_handoff", requests.GetHandoff(), handoff)
        left = postgres.run("select count(*) from record where kind = 'erasure'")
        return b"secret" not in bytes(shown.handoff.payload) and left.strip() == "0"

    await until(erased)


async def test_a_relay_that_could_not_be_counted_once_is_counted_again(
    here: Relay, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    del here  # runs
    attend, failed = PostgresFleet.attend, asyncio.Event()

    async def conflict_once(fleet: PostgresFleet, attending: Sequence[Attending]) -> Roll:
        if not failed.is_set():
            failed.set()
            raise ConflictError("somebody else had the row")
        return await attend(fleet, attending)

    monkeypatch.setattr(PostgresFleet, "attend", conflict_once)
    async with asyncio.timeout(SECONDS_MAX):
        await failed.wait()
    postgres.run("update node set seen_at = 0")

    async def counted() -> bool:
        return postgres.run("select count(*) from node where seen_at > 0").strip() == "1"

    await until(counted)


async def test_nobody_is_refused_for_what_another_relay_has_just_changed(
    here: Relay, there: Relay
) -> None:
    for number in range(10):
        agent = Caller(team="default", agent=f"a{number}")
        told = {"agent_id": agent.agent, "capabilities": [{"name": f"c{number}"}]}
        manifest = msgspec.Raw(msgspec.json.encode(told))
        async with asyncio.timeout(SECONDS_MAX):
            register = requests.Register(agent=agent.agent, manifest=manifest)
            await here.call(agent, "register", register, name=agent.agent)
        wanted = requests.Offer(capability=f"c{number}")
        asking = Asked(SENDER, "offer", wanted)
        there.ask(asking)
        asked = await ask(there, SENDER, "offer", wanted)
        async with asyncio.timeout(SECONDS_MAX):
            assert asked.handoff.to == agent.agent
            told_later = (await asking.reply).answer
        assert isinstance(told_later, views.HandoffAnswer)
        assert told_later.handoff.to == agent.agent
