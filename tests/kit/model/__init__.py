"""An independent model of the protocol: what a relay must answer, in a few plain rules.

Written from `docs/protocol.md`, and sharing nothing with `core`: no events, no table, no timers;
a handoff here is a bag of facts, and time a handful of moments at which it changes by itself. What
changes neither a state nor an answer (nudges, receipts, bodies) is not here; of escalation, only who
is told of a dead letter.
"""

from kit.model.facts import Handoff, Leg, Question, RefusedError, Rules, Shown
from kit.model.team import Model

__all__ = ["Handoff", "Leg", "Model", "Question", "RefusedError", "Rules", "Shown"]
