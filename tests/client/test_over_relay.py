"""The SDK with a real relay: in this process, over WebSocket and over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nodrop
from nodrop import app
from nodrop.client.auth.credentials import Credentials, CredentialsFile
from nodrop.client.transports.connecting import TransportName

WAIT = "20s"
HEARTBEAT_SECONDS = 3.0
"""A cancel is heard of with the next one; after three that are missing a worker is taken for dead,
and this process may be kept from running for longer than one would think."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a relay is, and how it is reached."""

    address: str
    transport: TransportName | None = None

    def connect(self, agent: str) -> AbstractAsyncContextManager[nodrop.Client]:
        return nodrop.connect(self.address, agent=agent, transport=self.transport)


@pytest.fixture(params=["in-process", "websocket", "http"])
async def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Place]:
    monkeypatch.setenv("NODROP_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    if request.param == "in-process":
        # The relay lives for as long as somebody uses it.
        async with nodrop.connect(":memory:"):
            yield Place(address=":memory:")
        return
    async with app.open_relay(":memory:", home=tmp_path) as relay, app.listening(relay) as url:
        await relay.ensure_token("default", agent="me", role="operator", secret="nd_operator")
        CredentialsFile(tmp_path).write(Credentials(url=url, operator="nd_operator"))
        yield Place(address=url, transport=request.param)


Serving = Callable[..., AbstractAsyncContextManager[None]]


@pytest.fixture
def serving(place: Place) -> Serving:
    """Agents that work while the block runs."""

    @asynccontextmanager
    async def serving(*agents: nodrop.Agent, grace: float = 5) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as group, place.connect("me") as me:
            for agent in agents:
                work = agent.serve(
                    place.address,
                    transport=place.transport,
                    heartbeat_seconds=HEARTBEAT_SECONDS,
                    grace=grace,
                )
                group.create_task(work)
            async with asyncio.timeout(20):
                await published(me, *agents)
            yield
            for agent in agents:
                agent.stop()

    return serving


async def published(me: nodrop.Client, *agents: nodrop.Agent) -> None:
    """Return when the agents have published their manifests."""
    wanted = {agent.name for agent in agents}
    while wanted:
        wanted -= {shown.agent_id for shown in await me.agents() if shown.version}
        if wanted:
            await me.log(after=(await me.log(limit=500))[-1].seq, wait="100ms")


@pytest.fixture
def agent() -> nodrop.Agent:
    return nodrop.Agent("code_agent", description="Investigates bugs")


async def first(me: nodrop.Client, kind: str) -> Any:
    """Wait for the first item of a kind in an inbox."""
    after = 0
    async with asyncio.timeout(20):
        while True:
            inbox = await me.inbox(after=after, wait=WAIT)
            after = inbox.after
            for item in inbox:
                if item.kind == kind:
                    return item


async def test_the_seeds_story(place: Place, serving: Serving, agent: nodrop.Agent) -> None:
    tickets: list[str] = []

    @agent.capability("bug_triage", timeout="3h", reliability_sla=0.95, concurrency=4)
    async def bug_triage(task: nodrop.Task, email_id: str) -> dict[str, str]:
        await task.update("reproducing", eta="2h")
        await task.once("open-ticket", tickets.append)
        version = await task.ask("Which app version?", to="inbox_monitor")
        return {"timeline": "tomorrow", "version": version, "email": email_id}

    async with serving(agent), place.connect("inbox_monitor") as me:
        handoff = await me.hand_off(
            to="code_agent",
            capability="bug_triage",
            trigger="Bug report detected",
            title="Login button not working on mobile",
            payload={"email_id": "msg_123", "customer": "jane@company.com"},
            priority="medium",
            accept_within="15m",
            deadline="4h",
            idempotency_key="msg_123",
            escalation=[{"when": "unacknowledged", "after": "1h", "notify": "me"}],
        )
        assert handoff.ref == "inbox_monitor/msg_123"
        assert handoff.receipts[0].rung == "stored"
        ack = await handoff.acknowledged(wait=WAIT)
        assert ack.position == 1
        question = await first(me, "question")
        await question.answer("1.2.3")
        assert await handoff.result(wait=WAIT) == {
            "timeline": "tomorrow",
            "version": "1.2.3",
            "email": "msg_123",
        }
        await handoff.settle()
        assert handoff.rung == "settled"
        assert tickets == [f"{handoff.id}:open-ticket"]
        types = [entry.type for entry in await me.log(handoff_id=handoff.id)]
        assert types[0] == "handoff.offered.v1"
        assert types[-1] == "handoff.settled.v1"


async def test_a_failed_attempt_is_followed_by_another_that_repeats_no_step(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    done: list[str] = []

    @agent.capability("bug_triage")
    async def bug_triage(task: nodrop.Task) -> Any:
        await task.once("charge", lambda: done.append("charged"))
        await task.checkpoint({"attempt": task.attempt})
        if task.attempt == 1:
            raise OSError("the network is down")
        return task.last_checkpoint

    async with serving(agent), place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("code_agent", backoff={"first": "10ms"})
        assert await handoff.result(wait=WAIT) == {"attempt": 2}
    assert done == ["charged"]


async def test_a_chain_passes_on_to_its_end(place: Place, serving: Serving) -> None:
    coder, support = nodrop.Agent("code_agent"), nodrop.Agent("support_agent")

    @coder.capability("fix")
    async def fix(task: nodrop.Task) -> str:
        assert task.chain.next == ("support_agent",)
        return "fixed"

    @support.capability("review")
    async def review(task: nodrop.Task, result: str) -> str:
        assert [leg["agent"] for leg in task.chain.done] == ["code_agent"]
        return f"{result} and reviewed"

    async with serving(coder, support), place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("code_agent", payload={}, then=[{"to": "support_agent"}])
        assert await handoff.result(wait=WAIT, of="chain") == "fixed and reviewed"
        assert await handoff.result(wait=WAIT) == "fixed"
        await me.flush()
        legs = await me.trace(handoff.correlation_id)
        assert [(leg.recipient, leg.state) for leg in legs] == [
            ("code_agent", "completed"),
            ("support_agent", "completed"),
        ]
        assert all(leg.view["settled_at"] for leg in legs)


async def test_a_rejected_handoff_is_redriven_to_another(place: Place, serving: Serving) -> None:
    lazy, keen = nodrop.Agent("lazy_agent"), nodrop.Agent("keen_agent")

    @lazy.handler
    async def decline() -> None:
        raise nodrop.Reject("not today")

    @keen.handler
    async def do() -> str:
        return "done"

    async with serving(lazy, keen), place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("lazy_agent", title="Tidy up")
        with pytest.raises(nodrop.HandoffFailed, match="not today") as failed:
            await handoff.result(wait=WAIT)
        assert failed.value.outcome.state == "rejected"
        (letter,) = await me.dead_letters()
        successor = await letter.redrive("keen_agent")
        assert await handoff.result(wait=WAIT) == "done"
        assert handoff.id == successor.id


async def test_countered_terms_are_agreed_to(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    @agent.handler
    async def negotiate(task: nodrop.Task) -> str:
        view = await task.counter(priority="low", reason="busy")
        return view["priority"]

    async with serving(agent), place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("code_agent")
        counter = await first(me, "counter")
        await counter.agree()
        assert await handoff.result(wait=WAIT) == "low"


async def test_a_declined_counter_ends_the_handler(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    cancelled = asyncio.Event()

    @agent.handler
    async def negotiate(task: nodrop.Task) -> None:
        try:
            await task.counter(priority="low")
        finally:
            cancelled.set()

    async with serving(agent), place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("code_agent")
        await (await first(me, "counter")).decline("as it is, or not at all")
        assert (await handoff.outcome(wait=WAIT)).state == "rejected"
        async with asyncio.timeout(20):
            await cancelled.wait()


async def test_a_parked_handoff_comes_back_with_answer_and_checkpoint(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    @agent.handler
    async def think(task: nodrop.Task) -> Any:
        if "colour" not in task.answers:
            await task.park("Which colour?", name="colour", checkpoint={"page": 3})
        return [task.attempt, task.answers["colour"], task.last_checkpoint]

    async with serving(agent), place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("code_agent")
        question = await first(me, "question")
        await question.answer("blue")
        assert await handoff.result(wait=WAIT) == [2, "blue", {"page": 3}]


async def test_the_same_key_is_the_same_handoff(place: Place) -> None:
    async with place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("code_agent", title="Once", idempotency_key="k")
        again = await me.hand_off("code_agent", title="Once", idempotency_key="k")
        assert again.id == handoff.id
        with pytest.raises(nodrop.IdempotencyConflictError):
            await me.hand_off("code_agent", title="Twice", idempotency_key="k")
        assert (await me.handoff("inbox_monitor/k")).id == handoff.id


async def test_a_cancelled_handoff_cancels_its_handler(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    @agent.handler
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(agent), place.connect("inbox_monitor") as me, asyncio.timeout(20):
        handoff = await me.hand_off("code_agent")
        await started.wait()
        await handoff.cancel("never mind")
        await cancelled.wait()


async def test_a_stopping_worker_gives_its_work_to_the_next(place: Place, serving: Serving) -> None:
    first_try, second_try = nodrop.Agent("code_agent"), nodrop.Agent("code_agent")
    started = asyncio.Event()

    @first_try.handler
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    @second_try.handler
    async def do(task: nodrop.Task) -> int:
        return task.attempt

    async with place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("code_agent")
        async with serving(first_try, grace=0), asyncio.timeout(20):
            await started.wait()
        assert (await handoff.refresh()).state == "offered"
        async with serving(second_try):
            assert await handoff.result(wait=WAIT) == 2
        assert handoff.view["tries"] == 0


async def test_a_result_that_breaks_its_promise_fails(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    @agent.capability("count")
    async def count() -> int:
        return "three"  # pyright: ignore[reportReturnType]  # the broken promise

    async with serving(agent), place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("code_agent", capability="count")
        with pytest.raises(nodrop.HandoffFailed) as failed:
            await handoff.result(wait=WAIT)
        assert failed.value.code == "result_invalid"


async def test_a_payload_that_does_not_fit_is_refused_at_the_offer(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    @agent.capability("count")
    async def count(depth: int) -> int:
        return depth

    async with serving(agent), place.connect("inbox_monitor") as me:
        with pytest.raises(nodrop.PayloadInvalidError) as refused:
            await me.hand_off("code_agent", payload={"depth": "deep"})
        assert "depth" in refused.value.errors[0].path


async def test_a_plain_function_asks_and_is_answered(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    @agent.capability("ask")
    def ask(task: nodrop.BlockingTask, n: int) -> str:
        task.update("asking")
        return task.ask("Why?") * n

    async with serving(agent), place.connect("inbox_monitor") as me:
        handoff = await me.hand_off("code_agent", payload={"n": 2})
        await (await first(me, "question")).answer("so ")
        assert await handoff.result(wait=WAIT) == "so so "


async def test_several_agents_work_in_one_process(place: Place) -> None:
    agents = [nodrop.Agent("first_agent"), nodrop.Agent("second_agent")]
    for agent in agents:

        @agent.handler
        async def name(task: nodrop.Task) -> str:
            return task.recipient

    async with place.connect("inbox_monitor") as me:
        serving = asyncio.create_task(
            nodrop.serve(*agents, address=place.address, transport=place.transport)
        )
        handoffs = [await me.hand_off(agent.name) for agent in agents]
        results = [await handoff.result(wait=WAIT) for handoff in handoffs]
        assert results == ["first_agent", "second_agent"]
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


async def test_notes_are_read_by_the_team(place: Place) -> None:
    async with place.connect("inbox_monitor") as me, place.connect("me") as person:
        handoff = await me.hand_off("code_agent")
        await me.note("a hunch", handoff=handoff.id)
        await person.note("all quiet")
        bodies = [entry.body for entry in await person.log() if entry.type.endswith("noted.v1")]
        assert bodies == [{"text": "a hunch"}, {"text": "all quiet"}]


@dataclass
class Summary:
    text: str
    sources: list[str]


async def test_a_stranger_is_found_agreed_with_and_asked(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    @agent.capability("research", timeout="5m", tags=["eu"], reliability_sla=0.9)
    async def research(query: str, depth: int = 1) -> Summary:
        return Summary(text=query * depth, sources=[])

    async with serving(agent), place.connect("editor") as me:
        sends = {"query": "string"}
        [found] = await me.find("research", tags=["eu"], input=sends, output=Summary)
        assert (found.agent_id, found.presence) == (agent.name, "idle")
        [offering] = found.offers
        assert (offering.input, offering.output) == ("fits", "fits")
        assert offering.claimed.reliability_sla == 0.9
        assert await me.find("research", output={"pages": "int"}) == []
        assert await me.find("research", reliability=0.5) == []

        contract = await me.contract("research", timeout="1m", input=sends, output=Summary)
        handoff = await me.hand_off(contract=contract, payload={"query": "ab", "depth": 2})
        assert handoff.view["contract_digest"] == contract.digest
        assert await handoff.result(wait=WAIT) == {"text": "abab", "sources": []}
        with pytest.raises(nodrop.ContractMismatchError):
            await me.hand_off(contract=contract, payload={"query": "a"}, attempts_max=9)
        with pytest.raises(nodrop.NoMatchError) as refused:
            await me.contract("research", output={"pages": "int"})
        assert [problem.path for problem in refused.value.errors] == [agent.name]


async def test_terms_are_countered_agreed_to_and_declined(
    place: Place, serving: Serving, agent: nodrop.Agent
) -> None:
    @agent.capability("research", timeout="5m")
    async def research(task: nodrop.Task) -> str:
        view = await task.counter(timeout="9m", reason="it is deep")
        return view["timeout"]

    async with serving(agent), place.connect("editor") as me:
        handoff = await me.hand_off(agent.name, timeout="1m")
        item = await first(me, "counter")
        assert (await item.handoff()).question is not None
        await item.agree()
        assert await handoff.result(wait=WAIT) == "9m"

        declined = await me.hand_off(agent.name, timeout="1m")
        await (await first(me, "counter")).decline("too slow")
        with pytest.raises(nodrop.HandoffFailed) as ended:
            await declined.result(wait=WAIT)
        assert ended.value.code == "declined"


def test_an_agent_says_when_to_expect_it() -> None:
    agent = nodrop.Agent(
        "night_owl",
        tags=["eu"],
        availability={"mode": "scheduled", "next_active_at": "2026-11-16T22:00:00Z"},
        discovery_endpoint="https://agents.example.com/night_owl",
    )

    @agent.capability("count", concurrency=2, tags=["fast"])
    def count(words: list[str], by: dict[str, int] | None = None) -> int:
        """Count words.

        In any language.
        """
        return len(words) + len(by or {})

    assert agent.manifest() == {
        "agent_id": "night_owl",
        "tags": ["eu"],
        "capabilities": [
            {
                "name": "count",
                "description": "Count words.",
                "input_schema": {
                    "type": "object",
                    "properties": {
                        "words": {"type": "array", "items": {"type": "string"}},
                        "by": {
                            "anyOf": [
                                {"type": "object", "additionalProperties": {"type": "integer"}},
                                {"type": "null"},
                            ],
                            "default": None,
                        },
                    },
                    "required": ["words"],
                },
                "output_schema": {"type": "integer"},
                "tags": ["fast"],
                "concurrency": 2,
            }
        ],
        "availability": {"mode": "scheduled", "next_active_at": "2026-11-16T22:00:00Z"},
        "discovery_endpoint": "https://agents.example.com/night_owl",
    }


# --- a busy worker ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Busy:
    """An agent that has one slot, and holds on to what it has until told otherwise."""

    agent: nodrop.Agent
    go_on: asyncio.Event
    done: list[Any]


@pytest.fixture
def busy() -> Busy:
    made = Busy(nodrop.Agent("busy_agent", concurrency=1), asyncio.Event(), [])

    @made.agent.handler
    async def work(task: nodrop.Task) -> None:
        await made.go_on.wait()
        made.done.append(task.payload)

    return made


PAGED: dict[str, Any] = {"when": "unacknowledged", "after": "1h", "notify": "me"}


async def test_a_busy_worker_acknowledges_at_once_what_it_has_no_slot_for(
    place: Place, serving: Serving, busy: Busy
) -> None:
    async with serving(busy.agent), place.connect("inbox_monitor") as me:
        handoffs = [
            await me.hand_off(to="busy_agent", title=f"Bug {n}", payload=n, escalation=[PAGED])
            for n in range(1, 6)
        ]
        acks = [await handoff.acknowledged(wait=WAIT) for handoff in handoffs]
        assert [ack.position for ack in acks] == [1, 2, 3, 4, 5]
        assert [ack.queued for ack in acks] == [False, True, True, True, True]
        assert {ack.status for ack in acks[1:]} == {"Added to queue"}
        second = await me.handoff(handoffs[1].id)
        assert (second.state, second.attempt) == ("offered", 0)
        first_word = {r.rung: r.at for r in second.receipts}["acknowledged"]
        busy.go_on.set()
        for handoff in handoffs:
            await handoff.result(wait=WAIT)
        assert busy.done == [1, 2, 3, 4, 5]
        ladder = {r.rung: r.at for r in (await me.handoff(handoffs[1].id)).receipts}
        assert ladder["acknowledged"] == first_word < ladder["delivered"]
    async with place.connect("me") as person:
        assert [item.summary for item in await person.inbox()] == []


async def test_two_processes_of_an_agent_share_its_queue(
    place: Place, serving: Serving, busy: Busy
) -> None:
    other = nodrop.Agent("busy_agent", concurrency=1)

    @other.handler
    async def work(task: nodrop.Task) -> None:
        await busy.go_on.wait()
        busy.done.append(task.payload)

    async with serving(busy.agent, other), place.connect("inbox_monitor") as me:
        handoffs = [await me.hand_off(to="busy_agent", payload=n) for n in range(5)]
        acks = [await handoff.acknowledged(wait=WAIT) for handoff in handoffs]
        assert sorted(ack.position or 0 for ack in acks[2:]) == [3, 4, 5]
        assert [ack.queued for ack in acks[2:]] == [True, True, True]
        busy.go_on.set()
        for handoff in handoffs:
            await handoff.result(wait=WAIT)
        assert sorted(busy.done) == [0, 1, 2, 3, 4]
        queued = [e.handoff_id for e in await me.log(limit=500) if e.type == "handoff.queued.v1"]
        assert len(set(queued)) == 3
        if place.transport != "http":  # two that poll may both find it at the same moment
            assert len(queued) == 3
