"""The line that a handoff stands in: who was visited on the way to it, and when that is a loop.

A line goes along `parent_id` and along the legs of a chain. A redrive takes the place of what it
redrives, so it is no further visit.
"""

from collections.abc import Iterable, Sequence

from nodrop.model.errors import LoopDetectedError, Problem
from nodrop.model.handoff import Handoff, Leg
from nodrop.model.limits import Limits


def visited(handoff: Handoff) -> tuple[str, ...]:
    """Return the agents visited up to and including `handoff`, in order."""
    done = tuple(leg.agent for leg in handoff.legs_done)
    return (*handoff.ancestors, *done, handoff.recipient)


def require_no_loop(
    above: Sequence[str], to: str, legs: Iterable[Leg], limits: Limits, *, path: str = "then"
) -> None:
    """Refuse a line that is too long, or comes back to one agent too often.

    Args:
        above: who was visited before.
        to: who is visited now.
        legs: who is visited then; a leg that names nobody is looked at when it opens.
        limits: how often is too often.
        path: what to tell the caller it is about.

    Raises:
        LoopDetectedError: it is.
    """
    ahead = [leg.to for leg in legs]
    line = [*above, to, *ahead]
    if len(line) > limits.legs_max + 1:
        message = f"{len(line)} handoffs in one line, at most {limits.legs_max + 1}"
        raise LoopDetectedError(message, errors=(Problem(path=path, message=message),))
    for agent in dict.fromkeys(agent for agent in (to, *ahead) if agent is not None):
        if line.count(agent) > limits.visits_per_agent_max:
            problem = Problem(path=path, message=f"{agent} is visited too often")
            raise LoopDetectedError(problem.message, errors=(problem,))
