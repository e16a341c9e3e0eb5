"""Work that goes round: ping-pong, longer loops, and livelock.

A hop is one time that work goes from one agent to another. The hop before it is the last one of the
same chain that brought the work to its sender. So a fan-out of ten items to one worker is ten
paths of one hop, and no loop; a retry or a redrive is no hop at all.
"""

from array import array
from collections import defaultdict
from typing import Final, NamedTuple

from nodrop.analysis.findings import Finding, Found, Severity, TooLittle, evidence
from nodrop.analysis.record import NONE, Record

PING_PONG_HOPS: Final = 4
"""A-B-A-B-A: five agents in a row, four hops between them."""
VISITS: Final = 4
"""Times that a path comes to one agent with one capability."""
SAME_PAYLOAD: Final = 3
"""Times that the same payload comes to one capability."""
HIGH_FACTOR: Final = 2
"""A finding this many times above its threshold is of high severity."""
_DEPTH_MAX: Final = 256
"""Hops that are looked back at."""


class _Worst(NamedTuple):
    """The longest case in one chain."""

    size: int
    hop: int


def detect(record: Record) -> Found:
    """Return the chains whose work goes round."""
    before = predecessors(record)
    ping_pong, loops, livelocks = _scan(record, before)
    livelocks.update(_repeats(record, livelocks))
    found = Found(tested=len(record.chains))
    if len(record.hops) and all(digest == NONE for digest in record.hops["digest"]):
        # `body_digest` is salted, so that only those who may read a payload can compare it.
        why = "no payload is there to compare; read the log as an operator"
        found.too_little.append(TooLittle(detector="livelock", subject="log", why=why))
    for chain, worst in sorted(ping_pong.items()):
        if chain not in livelocks:  # the more exact finding
            found.findings.append(_ping_pong(record, before, chain, worst))
    for chain, worst in sorted(loops.items()):
        if chain not in livelocks:
            found.findings.append(_loop(record, before, chain, worst))
    hops_of = _of_chains(record, set(livelocks))
    for chain, worst in sorted(livelocks.items()):
        found.findings.append(_livelock(record, hops_of[chain], chain, worst))
    return found


def predecessors(record: Record) -> "array[int]":
    """Return the hop before each hop, or `NONE`."""
    hops = record.hops
    brought: dict[tuple[int, int], int] = {}
    before = array("q")
    rows = zip(hops["chain"], hops["sender"], hops["recipient"], strict=True)
    for number, (chain, sender, recipient) in enumerate(rows):
        before.append(brought.get((chain, sender), NONE))
        brought[chain, recipient] = number
    return before


def _scan(
    record: Record, before: "array[int]"
) -> tuple[dict[int, _Worst], dict[int, _Worst], dict[int, _Worst]]:
    hops = record.hops
    chains, senders, recipients = hops["chain"], hops["sender"], hops["recipient"]
    capabilities, digests, redriven = hops["capability"], hops["digest"], hops["again"]
    alternating, depths = array("q"), array("q")
    ping_pong: dict[int, _Worst] = {}
    loops: dict[int, _Worst] = {}
    livelocks: dict[int, _Worst] = {}
    for hop, earlier in enumerate(before):
        depth = 1 if earlier == NONE else depths[earlier] + 1
        depths.append(depth)
        back = (
            earlier != NONE
            and recipients[hop] == senders[earlier]
            and senders[hop] != recipients[hop]
        )
        alternating.append(alternating[earlier] + 1 if back else 1)
        if alternating[hop] >= PING_PONG_HOPS:
            _keep(ping_pong, chains[hop], alternating[hop], hop)
        if depth < SAME_PAYLOAD or redriven[hop]:
            continue
        whom, what, digest = recipients[hop], capabilities[hop], digests[hop]
        visits, same, at = 0, 0, hop
        for _ in range(_DEPTH_MAX):
            if not redriven[at]:
                visits += recipients[at] == whom and capabilities[at] == what
                same += digest != NONE and digests[at] == digest and capabilities[at] == what
            at = before[at]
            if at == NONE:
                break
        if visits >= VISITS:
            _keep(loops, chains[hop], visits, hop)
        if same >= SAME_PAYLOAD:
            _keep(livelocks, chains[hop], same, hop)
    return ping_pong, loops, livelocks


def _repeats(record: Record, known: dict[int, _Worst]) -> dict[int, _Worst]:
    """Return chains in which one agent is given the same payload again after each result.

    At the same time is a vote or a map, and not looked at; another result each time is progress.
    """
    h, hops = record.handoffs, record.hops
    same: defaultdict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for hop, handoff in enumerate(hops["handoff"]):
        if hops["digest"][hop] != NONE and not h["again"][handoff]:
            chain = hops["chain"][hop]
            place = (chain, hops["recipient"][hop], hops["capability"][hop], hops["digest"][hop])
            same[place].append(hop)
    found: dict[int, _Worst] = {}
    for (chain, *_), each in same.items():
        if len(each) < SAME_PAYLOAD or chain in known:
            continue
        ended = NONE
        results: defaultdict[int, int] = defaultdict(int)
        for hop in each:
            handoff = hops["handoff"][hop]
            if hops["at"][hop] >= ended and h["result"][handoff] != NONE:
                results[h["result"][handoff]] += 1
                ended = h["ended_at"][handoff]
        most = max(results.values(), default=0)
        if most >= SAME_PAYLOAD:
            _keep(found, chain, most, each[-1])
    return found


def _keep(worst: dict[int, _Worst], chain: int, size: int, hop: int) -> None:
    if chain not in worst or worst[chain].size < size:
        worst[chain] = _Worst(size, hop)


def _path(before: "array[int]", hop: int) -> list[int]:
    """Return the hops that led to one, oldest first."""
    path: list[int] = []
    while hop != NONE and len(path) < _DEPTH_MAX:
        path.append(hop)
        hop = before[hop]
    return path[::-1]


def _ping_pong(record: Record, before: "array[int]", chain: int, worst: _Worst) -> Finding:
    path = _path(before, worst.hop)[-worst.size :]
    names, hops = record.agents.of, record.hops
    pair = sorted({hops["sender"][worst.hop], hops["recipient"][worst.hop]})
    one, other = (names[n] for n in pair)
    return Finding(
        detector="ping-pong",
        severity=_severity(worst.size, PING_PONG_HOPS),
        subject=record.chains[chain],
        agents=(one, other),
        says=f"{one} and {other} handed the same chain to each other {worst.size} times in a row",
        effect={"hops": worst.size},
        tested=f"A-B-A-B-A along the path of one chain: at least {PING_PONG_HOPS} hops",
        benign=(
            "a review that was agreed to take several rounds",
            "two halves of one job that alternate by design",
        ),
        evidence=evidence([hops["seq"][hop] for hop in path]),
        entries=worst.size,
        since=hops["at"][path[0]],
        until=hops["at"][worst.hop],
        action=_stop(record, worst.hop),
    )


def _loop(record: Record, before: "array[int]", chain: int, worst: _Worst) -> Finding:
    hops, names = record.hops, record.agents.of
    whom, what = hops["recipient"][worst.hop], hops["capability"][worst.hop]
    path = _path(before, worst.hop)
    visits = [h for h in path if hops["recipient"][h] == whom and hops["capability"][h] == what]
    turn = path[path.index(visits[0]) :]
    others = list(dict.fromkeys(names[hops["recipient"][h]] for h in turn))
    for_what = f" for {record.capabilities[what]}" if record.capabilities[what] else ""
    return Finding(
        detector="loop",
        severity=_severity(worst.size, VISITS),
        subject=record.chains[chain],
        agents=tuple(others),
        says=f"one chain came to {names[whom]}{for_what} {worst.size} times",
        effect={"visits": worst.size, "agents": len(others)},
        tested=f"one agent, asked for one capability, at least {VISITS} times along one path",
        benign=("a hub that every step of the work goes through", "rounds that were agreed on"),
        evidence=evidence([hops["seq"][hop] for hop in visits]),
        entries=len(turn),
        since=hops["at"][turn[0]],
        until=hops["at"][worst.hop],
        action=_stop(record, worst.hop),
    )


def _livelock(record: Record, among: list[int], chain: int, worst: _Worst) -> Finding:
    hops, names = record.hops, record.agents.of
    digest, what = hops["digest"][worst.hop], hops["capability"][worst.hop]
    same = [
        hop for hop in among if hops["digest"][hop] == digest and hops["capability"][hop] == what
    ]
    whom = list(dict.fromkeys(names[hops["recipient"][hop]] for hop in same))
    return Finding(
        detector="livelock",
        severity=Severity.HIGH,
        subject=record.chains[chain],
        agents=tuple(whom),
        says=f"the same payload came to {', '.join(whom)} {worst.size} times: work without progress",
        effect={"repeats": worst.size},
        tested=f"the same payload at the same capability at least {SAME_PAYLOAD} times in one chain",
        benign=("polling, where the answer is expected to change later",),
        evidence=evidence([hops["seq"][hop] for hop in same]),
        entries=len(same),
        since=hops["at"][same[0]],
        until=hops["at"][same[-1]],
        action=_stop(record, worst.hop),
    )


def _of_chains(record: Record, chains: set[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {chain: [] for chain in chains}
    for hop, chain in enumerate(record.hops["chain"]):
        if chain in found:
            found[chain].append(hop)
    return found


def _severity(size: int, threshold: int) -> Severity:
    return Severity.HIGH if size >= HIGH_FACTOR * threshold else Severity.MEDIUM


def _stop(record: Record, hop: int) -> str:
    return f"nodrop cancel {record.ids[record.hops['handoff'][hop]]}"
