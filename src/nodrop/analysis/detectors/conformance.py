"""Conformance: whether chains went the way that was declared when they began."""

from collections import defaultdict
from typing import Final

from nodrop.analysis.findings import Finding, Found, Severity, Value, evidence
from nodrop.analysis.record import COMPLETED, NONE, Record

SHARE: Final = 0.2
"""Deviating chains of one declaration, from which on it is no exception."""
CHAINS_MIN: Final = 10


class Conformance(Value, frozen=True, kw_only=True):
    """How the chains of one declaration went. Chains that go on are not in it."""

    declared: str
    """The capabilities, or agents, in order."""
    chains: int
    as_declared: int
    stopped: int
    """They ended before the last leg, without success."""
    skipped: int
    """They ended well, and a declared leg is missing."""
    added: int
    """Work was handed to others in between."""


class _Deviation(Value, frozen=True, kw_only=True):
    chain: int
    kind: str
    seq: int
    at: int
    agents: tuple[str, ...]


def conformances(record: Record) -> list[Conformance]:
    """Return how chains went, by what was declared."""
    return [each for each, _ in _compared(record)]


def detect(record: Record) -> Found:
    """Return the declarations that too many chains do not follow."""
    found = Found()
    for each, deviations in _compared(record):
        found.tested += each.chains
        odd = [d for d in deviations if d.kind != "stopped"]  # a failure is told as one
        if each.chains < CHAINS_MIN or len(odd) < SHARE * each.chains:
            continue
        agents = tuple(dict.fromkeys(agent for d in odd for agent in d.agents))[:10]
        found.findings.append(
            Finding(
                detector="conformance",
                severity=Severity.LOW,
                subject=each.declared,
                agents=agents,
                says=f"{len(odd)} of {each.chains} chains declared as {each.declared} went another way",
                effect={"skipped": each.skipped, "added": each.added, "chains": each.chains},
                tested=f"a declared leg is missing, or others were asked, in {SHARE:.0%} of the chains",
                benign=("the declaration is out of date", "agents may ask for help"),
                evidence=evidence([d.seq for d in odd]),
                entries=len(odd),
                since=min(d.at for d in odd),
                until=max(d.at for d in odd),
            )
        )
    return found


def _compared(record: Record) -> list[tuple[Conformance, list[_Deviation]]]:
    hops_of: defaultdict[int, list[int]] = defaultdict(list)
    roots: dict[int, int] = {}
    h, hops = record.handoffs, record.hops
    for handoff in record.declared:
        roots.setdefault(h["chain"][handoff], handoff)
    for hop, chain in enumerate(hops["chain"]):
        if chain in roots and not hops["again"][hop]:
            hops_of[chain].append(hop)
    groups: defaultdict[str, list[_Deviation | None]] = defaultdict(list)
    for chain, root in roots.items():
        if (verdict := _verdict(record, root, hops_of[chain])) is not _OPEN:
            groups[_declared(record, root)].append(verdict)
    compared: list[tuple[Conformance, list[_Deviation]]] = []
    for declared, verdicts in sorted(groups.items()):
        odd = [verdict for verdict in verdicts if verdict is not None]
        counts = {
            kind: sum(d.kind == kind for d in odd) for kind in ("stopped", "skipped", "added")
        }
        compared.append(
            (
                Conformance(
                    declared=declared,
                    chains=len(verdicts),
                    as_declared=len(verdicts) - len(odd),
                    **counts,
                ),
                odd,
            )
        )
    return compared


_OPEN: Final = _Deviation(chain=NONE, kind="open", seq=0, at=0, agents=())


def _declared(record: Record, root: int) -> str:
    first = record.capabilities[record.handoffs["capability"][root]]
    legs = record.declared[root].legs
    return " → ".join(
        [first or record.agents[record.handoffs["recipient"][root]]]
        + [capability or agent or "?" for agent, capability in legs]
    )


def _verdict(record: Record, root: int, path: list[int]) -> _Deviation | None:
    """Return how a chain differs; None: it does not."""
    h, hops = record.handoffs, record.hops
    legs = record.declared[root].legs
    last = max((hops["handoff"][hop] for hop in path), default=root)
    if any(h["ended_at"][hops["handoff"][hop]] == NONE for hop in path):
        return _OPEN
    taken = [hop for hop in path if hops["handoff"][hop] == root or hops["declared"][hop]]
    added = [hop for hop in path if hop not in set(taken) and hops["handoff"][hop] != root]
    kind = ""
    where = path[-1]
    if len({hops["handoff"][hop] for hop in taken}) < len(legs) + 1:
        kind = "skipped" if h["outcome"][last] == COMPLETED else "stopped"
    elif added:
        kind, where = "added", added[0]
    if not kind:
        return None
    names = record.agents.of
    return _Deviation(
        chain=h["chain"][root],
        kind=kind,
        seq=hops["seq"][where],
        at=hops["at"][where],
        agents=(names[hops["sender"][where]], names[hops["recipient"][where]]),
    )
