"""The network of handovers, and cliques: groups that keep work among themselves."""

from collections import Counter
from typing import Final, NamedTuple

import rustworkx as rx

from nodrop.analysis.findings import Finding, Found, Severity, TooLittle, evidence
from nodrop.analysis.record import Record

EDGE_MIN: Final = 10
"""Handoffs in each direction that make an edge."""
MEMBERS_MIN: Final = 3
LIFT: Final = 3.0
"""How much more of the members' work stays inside than their share of all work."""
OUTSIDERS: Final = 2
"""Agents outside per member, at least: in a small team everybody works with everybody."""
_CENTRAL: Final = 10


class Handover(NamedTuple):
    """Work that went from one agent to another, and how often."""

    sender: str
    recipient: str
    times: int


def network(record: Record) -> list[Handover]:
    """Return who hands work to whom, most often first."""
    names = record.agents.of
    counts = Counter(
        (sender, recipient)
        for sender, recipient in zip(record.hops["sender"], record.hops["recipient"], strict=True)
        if sender != recipient
    )
    return [
        Handover(names[sender], names[recipient], count)
        for (sender, recipient), count in sorted(
            counts.items(), key=lambda item: (-item[1], names[item[0][0]], names[item[0][1]])
        )
    ]


def central(handovers: list[Handover]) -> list[tuple[str, float]]:
    """Return the agents that most paths between others go through, with their share of paths."""
    agents = sorted({name for each in handovers for name in each[:2]})
    places = {name: n for n, name in enumerate(agents)}
    graph: rx.PyDiGraph[str, int] = rx.PyDiGraph()
    graph.add_nodes_from(agents)
    graph.add_edges_from([(places[e.sender], places[e.recipient], e.times) for e in handovers])
    between = rx.digraph_betweenness_centrality(graph)
    order = sorted(between.items(), key=lambda item: -item[1])[:_CENTRAL]
    return [(agents[place], round(share, 4)) for place, share in order if share > 0]


def detect(record: Record) -> Found:
    """Return groups of agents that hand work to each other, undeclared, and to few others."""
    hops = record.hops
    edges: Counter[tuple[int, int]] = Counter()
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    rows = zip(hops["sender"], hops["recipient"], hops["declared"], hops["again"], strict=True)
    for sender, recipient, declared, again in rows:
        if declared or again or sender == recipient:
            continue
        edges[sender, recipient] += 1
        sent[sender] += 1
        received[recipient] += 1
    found = Found(tested=len(edges))
    mutual = [
        (a, b)
        for (a, b), count in edges.items()
        if a < b and count >= EDGE_MIN and edges[b, a] >= EDGE_MIN
    ]
    for members in _dense(mutual):
        active = len(sent.keys() | received.keys())
        names = tuple(sorted(record.agents[m] for m in members))
        if active - len(members) < OUTSIDERS * len(members):
            found.too_little.append(
                TooLittle(
                    detector="clique",
                    subject=", ".join(names),
                    why="they are so many of the team that who they leave out says nothing",
                )
            )
            continue
        inside = sum(edges[a, b] for a in members for b in members if a != b)
        stays = inside / sum(sent[m] for m in members)
        usual = sum(received[m] for m in members) / received.total()
        if stays < LIFT * usual:
            continue
        found.findings.append(_finding(record, members, inside=inside, stays=stays, usual=usual))
    return found


def _dense(edges: list[tuple[int, int]]) -> list[set[int]]:
    """Return groups made of triangles that share a side; one edge between two groups is no bridge."""
    nodes = sorted({n for edge in edges for n in edge})
    places = {node: place for place, node in enumerate(nodes)}
    graph: rx.PyGraph[int, None] = rx.PyGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from([(places[a], places[b], None) for a, b in edges])
    sides: rx.PyGraph[tuple[int, int], None] = rx.PyGraph()
    number = {edge: sides.add_node(edge) for edge in edges}
    inside: set[int] = set()
    for a, b in edges:
        for c in set(graph.neighbors(places[a])) & set(graph.neighbors(places[b])):
            third = graph[c]
            for side in ((a, third), (b, third)):
                ordered = (min(side), max(side))
                sides.add_edge(number[a, b], number[ordered], None)
            inside.add(number[a, b])
    return [
        {agent for side in part for agent in sides[side]}
        for part in rx.connected_components(sides)
        if part & inside
    ]


def _finding(
    record: Record, members: set[int], *, inside: int, stays: float, usual: float
) -> Finding:
    names = tuple(sorted(record.agents[m] for m in members))
    hops = record.hops
    places = [
        n
        for n, (a, b, declared) in enumerate(
            zip(hops["sender"], hops["recipient"], hops["declared"], strict=True)
        )
        if a in members and b in members and not declared
    ]
    return Finding(
        detector="clique",
        severity=Severity.MEDIUM,
        subject=", ".join(names),
        agents=names,
        says=f"{', '.join(names)} keep {stays:.0%} of what they hand off among themselves; "
        f"{usual:.0%} of all work goes to them",
        effect={"inside": inside, "stays": round(stays, 4), "usual": round(usual, 4)},
        tested=f"at least {MEMBERS_MIN} agents, {EDGE_MIN} undeclared handoffs each way, "
        f"{LIFT:g} times their share of all work",
        benign=("a squad that was formed for one job", "agents that alone can do this work"),
        evidence=evidence([hops["seq"][n] for n in places[:20]]),
        entries=len(places),
        since=hops["at"][places[0]],
        until=hops["at"][places[-1]],
    )
