"""Scenarios: which parts a script is made of. The same seed and size give the same script."""

from collections.abc import Sequence
from typing import Final

from nodrop_proof.emergence import market, talk
from nodrop_proof.emergence.script import Script
from nodrop_proof.emergence.work import Work, cut
from nodrop_proof.simulate.chance import Chance

NAMES: Final = ("all", "market", "pipeline", "storm", "talk", "clean")
AGENTS_MIN: Final = 20
LOOPS: Final = 12
LIVELOCKS: Final = 6
ORPHANS: Final = 9
CLIQUES: Final = 4
RETRY_STORMS: Final = 3
ESCALATION_STORMS: Final = 2


def make(name: str, *, agents: int, seed: int, corpus: Sequence[str] = ()) -> Script:
    """Return the script of a scenario.

    Args:
        name: one of `NAMES`; `all` has every family in it, `clean` none.
        agents: how many do the work; sellers and speakers come on top.
        seed: decides everything.
        corpus: lines of text for channels; made up by default.
    """
    script = Script()
    clean = name == "clean"
    if name in {"all", "pipeline", "storm", "clean"}:
        work = Work(script, Chance(seed, f"work of {agents}"), agents)
        if name in {"all", "storm"}:
            work.plan_storms(RETRY_STORMS, ESCALATION_STORMS)
        work.usual()
        if name in {"all", "pipeline"}:
            work.plant_loops(LOOPS)
            work.plant_livelocks(LIVELOCKS)
            work.plant_orphans(ORPHANS)
            work.plant_cliques(CLIQUES)
    if name in {"all", "market", "clean"}:
        market.markets(
            script, Chance(seed, f"markets of {agents}"), max(agents // 10, 10), clean=clean
        )
    if name in {"all", "talk", "clean"}:
        count = max(agents // 8, 15)
        talk.channels(script, Chance(seed, f"talk of {agents}"), count, clean=clean, corpus=corpus)
    cut(script)
    return script
