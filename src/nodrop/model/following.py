"""What follows from an outcome: the next leg of a chain, a fallback, the end of a group.

Answers questions about values; opening legs and closing groups is the engine's business.
"""

from nodrop.model.handoff import DEAD, FINAL, Handoff, Join, Leg, State


def next_leg(handoff: Handoff) -> tuple[Leg, tuple[Leg, ...]] | None:
    """Return the leg that the outcome of `handoff` opens, and those after it; None: none.

    After a result, that is the next leg that is no fallback. After anything else but a withdrawal,
    it is the fallback right after this one, if there is one.
    """
    if not handoff.legs:
        return None
    if handoff.state is State.COMPLETED:
        for index, leg in enumerate(handoff.legs):
            if not leg.fallback:
                return leg, handoff.legs[index + 1 :]
        return None
    if handoff.state in DEAD and handoff.legs[0].fallback:
        return handoff.legs[0], handoff.legs[1:]
    return None


def undecided(handoff: Handoff) -> bool:
    """Whether it is a dead letter: no success, no decision, no fallback that took its place."""
    return handoff.state in DEAD and handoff.decision is None and handoff.next_leg is None


def reached(join: Join) -> bool:
    """Whether as many members as needed have completed."""
    return sum(member.state is State.COMPLETED for member in join.members) >= join.needed


def closes(join: Join) -> bool:
    """Whether a group is over: enough members completed, or all have ended."""
    return reached(join) or all(member.state in FINAL for member in join.members)
