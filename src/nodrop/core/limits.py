"""Every bound in the system, named with its unit last.

`Limits` is a value, so that a relay, a test or a simulation can hold its own; `DEFAULT` is the
protocol's. Durations are milliseconds, like every time in the core.
"""

from typing import Final

import msgspec

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one relay."""

    # Clocks, where the offer does not say (protocol section 5).
    accept_within_ms: int = 15 * MINUTE
    update_every_ms: int = 30 * MINUTE
    deadline_ms: int = 24 * HOUR
    answer_within_ms: int = 4 * HOUR
    outcome_within_ms: int = 24 * HOUR
    rearm_ms_max: int = DAY
    """A clock that fires without a move re-arms at twice its length, at most this."""

    # Leases. A heartbeat every 10 s makes these the protocol's 30 s and 60 s.
    heartbeat_seconds: float = 10.0
    heartbeat_seconds_min: float = 0.1
    heartbeat_seconds_max: float = 3_600.0
    lease_heartbeats: int = 3
    """Missed heartbeats until an acknowledged delivery lapses."""
    lease_heartbeats_unacknowledged: int = 6
    """Missed heartbeats until a delivery that was never acknowledged lapses."""

    # Attempts.
    attempts_max: int = 3
    attempts_max_max: int = 100
    backoff_first_ms: int = 2 * SECOND
    backoff_max_ms: int = 5 * MINUTE
    releases_free_max: int = 9
    """From the tenth release on, a release is a try."""

    # Sizes.
    body_bytes_max: int = 1_048_576
    """Payload, result, checkpoint or text of one command."""
    frame_bytes_max: int = 1_310_720
    """One request or WebSocket frame: a full body and its envelope."""
    json_levels_max: int = 64
    text_chars_max: int = 10_000
    name_chars_max: int = 64
    key_chars_max: int = 256
    legs_max: int = 32
    visits_per_agent_max: int = 3
    escalation_steps_max: int = 16
    watchers_max: int = 64
    steps_max: int = 1_000
    """Recorded steps of one handoff."""
    answers_max: int = 100
    """Questions that one handoff may ask."""
    capabilities_max: int = 256
    schema_bytes_max: int = 65_536
    duration_ms_max: int = 3_660 * DAY

    # Batches, pages and waits.
    batch_commands_max: int = 512
    deliveries_max: int = 256
    page_items_max: int = 500
    page_items: int = 100
    wait_ms_max: int = 120 * SECOND
    queue_commands_max: int = 20_000
    """Commands waiting for a commit; more are refused with `queue_full`."""
    credit_max: int = 10_000
    outgoing_bytes_max: int = 16_777_216
    """Bytes waiting for one slow WebSocket reader before it is cut off."""

    # Backpressure: what one requester, and what one inbox, may have waiting. Refused, not dropped.
    open_handoffs_max: int = 100_000
    """Unfinished handoffs of one requester; one more is refused with `queue_full`."""
    inbox_handoffs_max: int = 100_000
    """Unfinished handoffs of one recipient; one more is refused with `queue_full`."""
    offers_per_second_max: float = 20_000.0
    """Of one agent; more are refused with `rate_limited`."""
    commands_per_second_max: float = 100_000.0
    """Of one agent, heartbeats apart; more are refused with `rate_limited`."""
    burst_seconds: float = 2.0
    """How many seconds' worth of its rate an agent may ask for at once."""
    full_retry_seconds: float = 5.0
    """What a requester is told to wait when it, or the inbox, has too much waiting."""

    # The retry budget: retries beyond it wait longer, and none is dropped.
    retry_percent: int = 10
    """Retries that a requester earns per hundred first attempts."""
    retries_saved_max: int = 3
    """Earned retries that a requester may save up."""
    retries_per_second: float = 10.0
    """The allowance of a team, for those whose own is used up."""
    retries_burst_max: float = 100.0
    """Of the allowance, what may be used at once."""

    # The security log.
    refusals_max: int = 1_024
    """Kinds of refusals that are counted; the ones longest not seen are forgotten first."""

    # Keys and joining.
    keys_per_agent_max: int = 16
    """Keys of one agent that are good at a time; rotating once more waits for one to expire."""
    invitations_max: int = 1_000
    """Open invitations of one team."""
    invitation_ms_max: int = 30 * DAY
    bearers_max: int = 10_000
    """Verified bearer tokens that are remembered until they expire."""
    allow_rules_max: int = 1_000

    # Memory of what was done.
    remember_ms: int = 7 * DAY
    """Keys and command ids outlive settlement by this."""
    recognise_ms: int = 10 * MINUTE
    """How long a turn-based sender's offer is known by its content alone, while it is unfinished."""


DEFAULT: Final = Limits()
