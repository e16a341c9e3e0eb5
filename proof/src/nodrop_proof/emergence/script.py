"""A script: what agents do, and when. Written as a log, or played to a relay.

Everything is decided when the script is made, so that both ways give the same findings.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec


def chain_id(number: int) -> str:
    """Return the correlation id of a chain, by the script's own number of it."""
    return f"chain-{number}"


class Act(StrEnum):
    """What an agent, or time, does."""

    REGISTER = "register"
    OFFER = "offer"
    ACK = "ack"
    ASK = "ask"
    COUNTER = "counter"
    ANSWER = "answer"
    RETRY = "retry"
    """The attempt fails and is to be tried again."""
    COMPLETE = "complete"
    FAIL = "fail"
    SETTLE = "settle"
    ESCALATE = "escalate"
    """Time's doing: the relay does it by itself."""
    EXPIRE = "expire"
    """Same."""
    SAY = "say"


class Step(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One thing that is done."""

    at: int
    """Milliseconds from the beginning."""
    act: Act
    actor: str
    handoff: int = -1
    """The script's own number of a handoff."""
    chain: int = -1
    to: str = ""
    capability: str | None = None
    then: tuple[tuple[str, str | None], ...] = ()
    """The legs that follow, as (agent, capability)."""
    opens: int = -1
    """Of a completion: the number of the next leg."""
    payload: Any = None
    title: str | None = None
    text: str | None = None
    parameters: Mapping[str, float] = {}
    covariates: Mapping[str, float] = {}
    observations: tuple[str, ...] = ()
    deadline_ms: int = 4 * 3_600_000
    escalate_ms: int = 0
    """How long it may stay unacknowledged before a notice is sent; 0: no notice."""
    capabilities: Mapping[str, float | None] = {}
    """Of a registration: the success rate that is declared for each."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What was put into a script on purpose."""

    family: str
    kind: str
    subject: str
    """A chain's id, a channel, a market, a capability, or agents in order."""
    since: int = 0
    """Milliseconds from the beginning, like `until`; 0 where time does not matter."""
    until: int = 0


class Script(msgspec.Struct, kw_only=True):
    """Steps and labels. `controls` are what looks like trouble and is none."""

    steps: list[Step] = []
    labels: list[Label] = []
    controls: list[Label] = []
    handoffs: int = 0
    chains: int = 0

    def new_handoff(self) -> int:
        """Return the number of another handoff."""
        self.handoffs += 1
        return self.handoffs - 1

    def new_chain(self) -> int:
        """Return the number of another chain."""
        self.chains += 1
        return self.chains - 1

    def add(self, at: float, act: Act, actor: str, **what: Any) -> None:
        """Add a step."""
        self.steps.append(Step(at=round(at), act=act, actor=actor, **what))

    def ordered(self) -> list[Step]:
        """Return the steps in the order of time."""
        return sorted(self.steps, key=lambda step: step.at)
