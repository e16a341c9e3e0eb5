"""What a decision may depend on besides the handoff and the command. Handed in, never looked up."""

from nodrop.model.commands import Binding, Candidate
from nodrop.model.events import Fact
from nodrop.model.handoff import Escalation, Value
from nodrop.model.limits import DEFAULT, Limits


class Surroundings(Value, frozen=True, kw_only=True):
    """What a decision may depend on besides the handoff and the command."""

    candidates: tuple[Candidate, ...] = ()
    """Who could be asked next for this handoff's capability, best first."""
    binding: Binding | None = None
    """The contract that a first delivery binds, where there was none at the offer."""
    position: int = 1
    """The place among what the recipient works on, where the recipient does not say."""
    place: int = 1
    """The same of something that waits: after what is held, and what is taken before it."""
    queued_acks: int = 0
    """Queued acknowledgements of the recipient that are in force."""
    retry_wait_ms: int = 0
    """How long the requester's retry budget makes a retry wait, whatever its backoff."""
    step_to: Candidate | None = None
    """Whom the escalation step that is due gives the handoff to; None: nobody can be found."""
    step_capability: str | None = None
    step_routed: bool = False
    team_steps: tuple[Escalation, ...] = ()
    """The escalation steps of the team's policy, for an offer."""
    successor: str | None = None
    """The id of what would carry on a dead letter that a step redrives."""
    up_since: int = 0
    """Start of the relay's uninterrupted service: its downtime is nobody's silence."""
    limits: Limits = DEFAULT


Facts = tuple[Fact, ...]
"""What a command brings about, in order."""
