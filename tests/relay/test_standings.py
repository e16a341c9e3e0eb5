"""What the relay learns about agents: counted from commits, kept now and then, asked at once."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from nodrop.model.errors import ContractMismatchError, NodropError
from nodrop.model.handoff import Handoff
from nodrop.model.limits import DEFAULT
from nodrop.protocol import requests as r
from nodrop.relay.directory.contracts import Contracts
from nodrop.relay.directory.observations import KIND, Observations
from nodrop.relay.relay import Caller, Relay, Reply
from nodrop.testing.clock import FakeClock
from nodrop_proof.kit.faulty import Fault, FaultyStore

REQUESTER = Caller(team="default", agent="inbox_monitor")


def caller(agent: str) -> Caller:
    return Caller(team="default", agent=agent)


async def publish(relay: Relay, agent: str, *capabilities: str) -> None:
    manifest = {"agent_id": agent, "capabilities": [{"name": name} for name in capabilities]}
    request = r.Register(agent=agent, manifest=msgspec.Raw(msgspec.json.encode(manifest)))
    await relay.call(caller(agent), "register", request, name=agent)


def shown(reply: Reply) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(reply.answer))


async def offer(relay: Relay, **fields: Any) -> Any:
    reply = await relay.call(REQUESTER, "offer", r.Offer(**fields))
    return shown(reply)["handoff"]


async def work(relay: Relay, agent: str, *, completes: bool = True) -> None:
    handoff = await offer(relay, to=agent, capability="triage")
    about = {"reference": handoff["id"]}
    await relay.call(caller(agent), "ack", r.Ack(), **about)
    if completes:
        await relay.call(caller(agent), "complete", r.Complete(attempt=1), **about)
    else:
        await relay.call(caller(agent), "fail", r.Fail(attempt=1), **about)


async def agents(relay: Relay, **query: Any) -> list[dict[str, Any]]:
    reply = await relay.call(REQUESTER, "agents", r.ListAgents(**query))
    return shown(reply)["agents"]


async def observed(relay: Relay, agent: str) -> dict[str, Any]:
    found = await agents(relay, capability="triage")
    [offers] = [a["offers"] for a in found if a["agent_id"] == agent]
    return offers[0]["observed"]


async def test_the_median_time_from_acknowledgement_is_told(relay: Relay, clock: FakeClock) -> None:
    await publish(relay, "a", "triage")
    for seconds in (1, 5, 60):
        handoff = await offer(relay, to="a", capability="triage")
        clock.advance(7_000)  # in the inbox, which is not its doing
        await relay.call(caller("a"), "ack", r.Ack(), reference=handoff["id"])
        clock.advance(seconds * 1_000)
        done = r.Complete(attempt=1)
        await relay.call(caller("a"), "complete", done, reference=handoff["id"])
    seen = await observed(relay, "a")
    assert (seen["n"], seen["completed"], seen["duration_seconds"]) == (3, 3, 5.0)


async def test_only_the_last_outcomes_count(relay: Relay) -> None:
    await publish(relay, "a", "triage")
    for turn in range(DEFAULT.observations_max + 20):
        await work(relay, "a", completes=turn >= 20)
    seen = await observed(relay, "a")
    assert (seen["n"], seen["success"]) == (DEFAULT.observations_max, 1.0)


async def test_what_was_observed_is_written_now_and_then_and_not_with_the_work(
    relay: Relay, store: FaultyStore, clock: FakeClock
) -> None:
    await publish(relay, "a", "triage")
    await work(relay, "a")
    await work(relay, "a", completes=False)
    assert await store.records(KIND) == []
    clock.advance(DEFAULT.observations_kept_ms)
    await offer(relay, to="a", capability="triage")  # the commit that notices it is time
    await relay.call(REQUESTER, "heartbeat", r.Heartbeat())
    [kept] = await store.records(KIND)
    assert (kept.team, kept.id) == ("default", "a/triage")
    assert msgspec.json.decode(kept.json) == [0, -1]


async def test_what_could_not_be_written_is_written_later(
    relay: Relay, store: FaultyStore, clock: FakeClock
) -> None:
    await publish(relay, "a", "triage")
    await work(relay, "a")
    clock.advance(DEFAULT.observations_kept_ms)
    handoff = await offer(relay, to="a", capability="triage")  # notices, and sets out to write
    store.fail_next(Fault.BEFORE_COMMIT)
    with suppress(NodropError):
        await relay.call(caller("a"), "ack", r.Ack(), reference=handoff["id"])
    await relay.call(REQUESTER, "heartbeat", r.Heartbeat())
    assert await store.records(KIND) == []
    clock.advance(DEFAULT.observations_kept_ms)
    await work(relay, "a")
    await relay.call(REQUESTER, "heartbeat", r.Heartbeat())
    [kept] = await store.records(KIND)
    assert msgspec.json.decode(kept.json) == [0]


async def test_queues_are_counted_through_everything_that_moves_a_handoff(
    relay: Relay, store: FaultyStore
) -> None:
    for name in ("a", "b"):
        await publish(relay, name, "triage")

    async def queued() -> dict[str, int]:
        found = await agents(relay, capability="triage")
        return {a["agent_id"]: a["queued"] for a in found}

    async def recounted() -> dict[str, int]:
        return {a: len(await store.queue("default", a)) for a in ("a", "b")}

    first = await offer(relay, capability="triage")
    second = await offer(relay, to="a", capability="triage")
    assert await queued() == {"a": 2, "b": 0} == await recounted()
    await relay.call(caller("a"), "reject", r.Reject(), reference=first["id"])
    assert await queued() == {"a": 1, "b": 1} == await recounted()
    await relay.call(REQUESTER, "reassign", r.Reassign(to="b"), reference=second["id"])
    await relay.call(REQUESTER, "reassign", r.Reassign(to="a"), reference=second["id"])
    assert await queued() == {"a": 1, "b": 1} == await recounted()
    await relay.call(caller("a"), "ack", r.Ack(), reference=second["id"])
    await relay.call(caller("a"), "complete", r.Complete(attempt=1), reference=second["id"])
    await relay.call(REQUESTER, "cancel", r.Cancel(), reference=first["id"])
    assert await queued() == {"a": 0, "b": 0} == await recounted()


async def test_a_failed_commit_counts_for_nothing(relay: Relay, store: FaultyStore) -> None:
    await publish(relay, "a", "triage")
    store.fail_next(Fault.BEFORE_COMMIT)
    with pytest.raises(NodropError):
        await offer(relay, to="a", capability="triage")
    [agent] = await agents(relay, capability="triage")
    assert agent["queued"] == len(await store.queue("default", "a")) == 0


MANY = DEFAULT.candidates_fresh_max + 6


async def test_of_very_many_candidates_the_best_are_asked_and_everybody_once(
    relay: Relay, clock: FakeClock
) -> None:
    for number in range(MANY):
        await publish(relay, f"agent-{number:03d}", "triage")
    first = await offer(relay, capability="triage")
    assert first["to"] == "agent-000"
    asked: list[str] = []
    handoff = first
    while handoff["state"] == "offered":
        asked.append(handoff["to"])
        clock.advance(1)
        reply = await relay.call(
            caller(handoff["to"]), "reject", r.Reject(), reference=handoff["id"]
        )
        handoff = shown(reply)["handoff"]
    assert sorted(asked) == [f"agent-{number:03d}" for number in range(MANY)]
    assert handoff["outcome"]["code"] == "no_candidate"


async def test_very_many_are_looked_at_again_after_a_moment(relay: Relay, clock: FakeClock) -> None:
    for number in range(MANY):
        await publish(relay, f"agent-{number:03d}", "triage")
    await offer(relay, capability="triage")
    clock.advance(DEFAULT.ghost_after_ms + 1)
    late = f"agent-{MANY - 1:03d}"
    await relay.call(caller(late), "heartbeat", r.Heartbeat())
    assert (await offer(relay, capability="triage"))["to"] == late


async def test_names_that_nobody_declared_are_not_remembered(
    relay: Relay, store: FaultyStore, clock: FakeClock
) -> None:
    await publish(relay, "plain")
    handoff = await offer(relay, to="plain", capability="made-up")
    await relay.call(caller("plain"), "ack", r.Ack(), reference=handoff["id"])
    done = r.Complete(attempt=1)
    await relay.call(caller("plain"), "complete", done, reference=handoff["id"])
    await publish(relay, "a", "triage")
    await work(relay, "a")
    clock.advance(DEFAULT.observations_kept_ms)
    await work(relay, "a")
    await relay.call(REQUESTER, "heartbeat", r.Heartbeat())
    assert [kept.id for kept in await store.records(KIND)] == ["a/triage"]


async def ranking_after_work(relay: Relay) -> list[str]:
    """Who comes first once `a` has failed half its work and `b` has done all of its own."""
    for name in ("a", "b"):
        await publish(relay, name, "triage")
    for turn in range(DEFAULT.observations_min):
        await work(relay, "a", completes=turn % 2 == 0)
        await work(relay, "b")
    return [agent["agent_id"] for agent in await agents(relay, capability="triage")]


async def test_the_ranking_follows_from_what_was_observed(relay: Relay) -> None:
    assert await ranking_after_work(relay) == ["b", "a"]


async def test_without_observing_the_ranking_would_not_change(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overlook(_observations: Observations, handoff: Handoff, at: int) -> None:
        del handoff, at

    monkeypatch.setattr(Observations, "observe", overlook)
    assert await ranking_after_work(relay) == ["a", "b"]


async def test_without_the_check_an_offer_would_pass_under_any_digest(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(relay, "a", "triage")
    wrong = {"to": "a", "capability": "triage", "contract_digest": "sha256:" + "0" * 64}
    with pytest.raises(ContractMismatchError):
        await offer(relay, **wrong)

    def wave_through(_contracts: Contracts, team: str, made: r.Offer, capability: str) -> None:
        del team, made, capability

    monkeypatch.setattr(Contracts, "check", wave_through)
    assert (await offer(relay, **wrong))["state"] == "offered"
