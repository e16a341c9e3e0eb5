"""The network of handovers equals a plain count, and cliques are groups that keep to themselves."""

import random
from collections import Counter

from kit.small_log import Log
from nodrop.analysis.detectors import cliques


def busy(log: Log, agents: int = 12, handoffs: int = 240) -> None:
    chance = random.Random(1)
    for n in range(handoffs):
        sender, to = chance.sample([f"w{k}" for k in range(agents)], 2)
        log.do(log.offer(sender, to, chain=f"busy/{n}"))


def together(log: Log, members: str, *, declared: bool = False, times: int = 12) -> None:
    for n in range(times):
        for one in members:
            for other in members:
                if one != other:
                    log.do(log.offer(one, other, chain=f"{one}{other}{n}", declared=declared))


def test_the_network_is_what_a_plain_count_says(log: Log) -> None:
    chance = random.Random(7)
    counted: Counter[tuple[str, str]] = Counter()
    for n in range(200):
        sender, to = chance.choice("abcde"), chance.choice("abcde")
        log.offer(sender, to, chain=str(n % 20))
        counted[sender, to] += sender != to
    network = cliques.network(log.record)
    assert {(e.sender, e.recipient): e.times for e in network} == +counted
    assert [e.times for e in network] == sorted((e.times for e in network), reverse=True)


def test_the_agent_between_two_groups_is_central(log: Log) -> None:
    for one in "abc":
        log.offer(one, "hub", chain=one)
        log.offer("hub", one.upper(), chain=one)
    [(agent, share)] = cliques.central(cliques.network(log.record))
    assert agent == "hub"
    # Nine of the paths between two others, of thirty ordered pairs of six others, go through it.
    assert share == 0.3


def test_three_that_keep_work_among_themselves_are_a_clique(log: Log) -> None:
    busy(log)
    together(log, "abc")
    [finding] = cliques.detect(log.record).findings
    assert finding.agents == ("a", "b", "c")
    assert finding.effect["stays"] == 1.0


def test_a_pair_a_declared_ring_and_a_small_team_are_none(log: Log) -> None:
    busy(log)
    together(log, "ab")
    together(log, "def", declared=True)
    assert not cliques.detect(log.record).findings


def test_in_a_small_team_it_cannot_tell(log: Log) -> None:
    together(log, "abc")
    told = cliques.detect(log.record)
    assert not told.findings
    assert [each.subject for each in told.too_little] == ["a, b, c"]
