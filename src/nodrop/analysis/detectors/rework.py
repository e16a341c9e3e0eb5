"""Work that is handed off again, and work that is called finished more than once."""

from collections import Counter, defaultdict
from typing import Final

from nodrop.analysis.findings import Finding, Found, Severity, evidence
from nodrop.analysis.record import Record

AGAIN: Final = 1
"""Handoffs of the same piece of work after the first."""
AGAIN_MEDIUM: Final = 3
CLOSED: Final = 2


def detect(record: Record) -> Found:
    """Return the chains that were handed off again, or closed again."""
    found = Found(tested=len(record.chains))
    _handed_again(record, found)
    _closed_again(record, found)
    return found


def _handed_again(record: Record, found: Found) -> None:
    """Redrives: the same piece of work, offered anew because the last time came to nothing."""
    h = record.handoffs
    of_chain: defaultdict[int, list[int]] = defaultdict(list)
    redriven = {h["chain"][n] for n in range(len(h)) if h["again"][n]}
    for n in range(len(h)):
        if h["chain"][n] in redriven:
            of_chain[h["chain"][n]].append(n)
    for chain, several in of_chain.items():
        again = [n for n in several if h["again"][n]]
        if len(again) < AGAIN:
            continue
        agents = [record.agents[h["recipient"][n]] for n in several]
        others = len(set(agents))
        whom = "the same agent" if others == 1 else f"{others} agents"
        found.findings.append(
            Finding(
                detector="handed-off-again",
                severity=Severity.MEDIUM if len(again) >= AGAIN_MEDIUM else Severity.LOW,
                subject=record.chains[chain],
                agents=tuple(dict.fromkeys(agents)),
                says=f"{record.chains[chain]} was handed off {len(again) + 1} times, to {whom}",
                effect={"times": len(again) + 1, "agents": others},
                tested=f"the same piece of work offered again, at least {AGAIN} time",
                benign=(
                    "the agent's session ended, and a fresh one goes on by design",
                    "the first result was sent back on purpose",
                ),
                evidence=evidence([h["offered_seq"][n] for n in several]),
                entries=len(several),
                since=h["offered_at"][several[0]],
                until=h["offered_at"][several[-1]],
                action=f"nodrop trace {record.ids[several[-1]]}",
            )
        )


def _closed_again(record: Record, found: Found) -> None:
    c = record.closings
    of_chain: defaultdict[int, list[int]] = defaultdict(list)
    for n, chain in enumerate(c["chain"]):
        of_chain[chain].append(n)
    for chain, several in of_chain.items():
        if len(several) < CLOSED:
            continue
        by = Counter(record.agents[c["agent"][n]] for n in several)
        words = ", ".join(
            f"{agent} {'once' if times == 1 else f'{times} times'}"
            for agent, times in by.most_common(3)
        )
        found.findings.append(
            Finding(
                detector="closed-again",
                severity=Severity.LOW,
                subject=record.chains[chain],
                agents=tuple(by),
                says=f"{record.chains[chain]} was closed {len(several)} times: {words}",
                effect={"times": len(several), "agents": len(by)},
                tested=f"closed at least {CLOSED} times",
                benign=(
                    "one agent finishes, and another whose role it is confirms it",
                    "it was opened again in between",
                ),
                evidence=evidence([c["seq"][n] for n in several]),
                entries=len(several),
                since=c["at"][several[0]],
                until=c["at"][several[-1]],
            )
        )
