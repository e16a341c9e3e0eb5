"""Handoff quality, reliability and conformance equal counts that are made in another way."""

import random
from collections import Counter, defaultdict

from kit.small_log import Log
from nodrop.analysis import record as records
from nodrop.analysis.detectors import conformance, quality, reliability, rework
from nodrop.analysis.detectors.statistics import wilson

OUTCOMES = (records.COMPLETED, records.COMPLETED, records.FAILED, records.REJECTED)


def test_quality_is_what_a_plain_count_says(log: Log) -> None:
    chance = random.Random(3)
    expected: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for n in range(300):
        sender, capability = chance.choice("pq"), chance.choice(["fetch", "write"])
        counted = expected[sender, capability]
        counted["offers"] += 1
        handoff = log.offer(sender, "a", chain=str(n), capability=capability)
        trouble = set[str]()
        if chance.random() < 0.3:
            log.record.ask(handoff, **log.tick(), counter=False)
            trouble.add("asked")
        if chance.random() < 0.2:
            log.record.ask(handoff, **log.tick(), counter=True)
            trouble.add("countered")
        if chance.random() < 0.1:
            log.offer("a", sender, chain=str(n))
            trouble.add("returned")
        outcome = chance.choice(OUTCOMES)
        log.do(handoff, outcome=outcome)
        trouble |= {records.OUTCOMES[outcome]} - {"completed"}
        counted.update(trouble)
        counted["troubled"] += bool(trouble)
    names = ("offers", "asked", "countered", "rejected", "failed", "returned", "troubled")
    told = {
        (q.sender, q.capability): {name: getattr(q, name) for name in names}
        for q in quality.qualities(log.record)
        if q.capability
    }
    assert told == {
        key: {name: counted[name] for name in names} for key, counted in expected.items()
    }


def test_a_sender_whose_receivers_must_ask_is_told_and_others_are_not(log: Log) -> None:
    for n in range(160):
        sender = "vague" if n % 4 == 0 else f"clear_{n % 4}"
        handoff = log.offer(sender, "a", chain=str(n), capability="fetch")
        if sender == "vague" or n % 20 == 1:
            log.record.ask(handoff, **log.tick(), counter=False)
        log.do(handoff)
    assert [f.subject for f in quality.detect(log.record).findings] == ["vague for fetch"]


def test_few_offers_say_nothing_about_a_sender(log: Log) -> None:
    handoff = log.offer("vague", "a", capability="fetch")
    log.record.ask(handoff, **log.tick(), counter=False)
    told = quality.detect(log.record)
    assert not told.findings
    assert told.too_little


def test_reliability_is_what_a_plain_count_says(log: Log) -> None:
    chance = random.Random(5)
    done: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for n in range(400):
        agent, outcome = chance.choice("ab"), chance.choice(OUTCOMES)
        log.do(log.offer("x", agent, chain=str(n), capability="fetch"), outcome=outcome)
        tried[agent] += outcome != records.REJECTED
        done[agent] += outcome == records.COMPLETED
    for each in reliability.observed(log.record):
        assert (each.n, each.completed) == (tried[each.agent], done[each.agent])
        assert each.lowest < done[each.agent] / tried[each.agent] < each.highest


def test_an_agent_below_its_claim_is_told_one_at_it_is_not(log: Log) -> None:
    log.record.claim("boasts", "fetch", 0.99)
    log.record.claim("keeps", "fetch", 0.8)
    for n in range(400):
        agent = "boasts" if n % 2 else "keeps"
        outcome = records.FAILED if n % 10 < 2 else records.COMPLETED
        log.do(log.offer("x", agent, chain=str(n), capability="fetch"), outcome=outcome)
    assert [f.agents for f in reliability.detect(log.record).findings] == [("boasts",)]


def test_a_gap_that_so_few_cannot_show_is_too_little_data(log: Log) -> None:
    log.record.claim("a", "fetch", 0.98)
    for n in range(20):
        outcome = records.FAILED if n == 0 else records.COMPLETED
        log.do(log.offer("x", "a", chain=str(n), capability="fetch"), outcome=outcome)
    told = reliability.detect(log.record)
    assert not told.findings
    assert [each.subject for each in told.too_little] == ["a for fetch"]


def test_the_interval_is_wilsons() -> None:
    # 1.96 for 95 %: the textbook's 8 of 10 is 0.490 to 0.943.
    low, high = wilson(8, 10, 1.96)
    assert (round(low, 3), round(high, 3)) == (0.49, 0.943)


def declared_chain(
    log: Log, chain: str, *, legs: int = 2, helped: bool = False, fails: bool = False
) -> None:
    plan = [(None, "write"), (None, "check")]
    first = log.offer("x", "a", chain=chain, capability="plan", legs=plan)
    if helped:
        log.do(log.offer("a", "helper", chain=chain, capability="help"))
    log.do(first)
    for n in range(legs):
        leg = log.offer("a", f"b{n}", chain=chain, capability=plan[n][1], declared=True)
        log.do(leg, outcome=records.FAILED if fails else records.COMPLETED)


def test_chains_are_counted_by_how_they_went(log: Log) -> None:
    for n in range(7):
        declared_chain(log, f"good {n}")
    declared_chain(log, "helped", helped=True)
    declared_chain(log, "short", legs=1)
    declared_chain(log, "broken", legs=1, fails=True)
    log.offer("x", "a", chain="open", capability="plan", legs=[(None, "write"), (None, "check")])
    [each] = conformance.conformances(log.record)
    assert each.declared == "plan → write → check"
    counts = (each.chains, each.as_declared, each.stopped, each.skipped, each.added)
    assert counts == (10, 7, 1, 1, 1)
    assert [f.subject for f in conformance.detect(log.record).findings] == ["plan → write → check"]


def test_a_few_exceptions_are_no_finding(log: Log) -> None:
    for n in range(12):
        declared_chain(log, f"good {n}", helped=n == 0)
    assert not conformance.detect(log.record).findings


def test_work_that_is_handed_off_again_is_told_with_how_often(log: Log) -> None:
    log.offer("x", "a", chain="once")
    log.offer("x", "a", chain="twice")
    log.offer("x", "b", chain="twice", again=True)
    [finding] = rework.detect(log.record).findings
    assert (finding.subject, finding.effect) == ("twice", {"times": 2, "agents": 2})


def test_work_that_several_close_is_told_with_who(log: Log) -> None:
    log.record.close("one", **log.tick(), agent="a")
    for agent in ("a", "refinery"):
        log.record.close("two", **log.tick(), agent=agent)
    [finding] = rework.detect(log.record).findings
    assert (finding.subject, finding.agents) == ("two", ("a", "refinery"))
