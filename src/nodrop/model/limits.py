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
    """Until a recipient must have accepted, where the offer does not say."""
    update_every_ms: int = 30 * MINUTE
    """Until a recipient must have said something, where neither it nor the offer does."""
    deadline_ms: int = 24 * HOUR
    """Until it expires, where the offer does not say."""
    answer_within_ms: int = 4 * HOUR
    """Until a question must be answered."""
    outcome_within_ms: int = 24 * HOUR
    """Until the requester must have the outcome."""
    rearm_ms_max: int = DAY
    """A clock that fires without a move re-arms at twice its length, at most this."""

    # Leases. A heartbeat every 10 s makes these the protocol's 30 s and 60 s.
    heartbeat_seconds: float = 10.0
    """What a process promises that does not say."""
    heartbeat_seconds_min: float = 0.1
    """The shortest heartbeat a process may promise; `invalid_request`."""
    heartbeat_seconds_max: float = 3_600.0
    """The longest; `invalid_request`."""
    lease_heartbeats: int = 3
    """Missed heartbeats until an acknowledged delivery lapses."""
    lease_heartbeats_unacknowledged: int = 6
    """Missed heartbeats until a delivery that was never acknowledged lapses."""

    # Attempts.
    attempts_max: int = 3
    """Tries, where the offer does not say."""
    attempts_max_max: int = 100
    """Tries that an offer may ask for; `invalid_request`."""
    backoff_first_ms: int = 2 * SECOND
    """The first wait before a retry, where the offer does not say."""
    backoff_max_ms: int = 5 * MINUTE
    """The longest, where the offer does not say."""
    releases_free_max: int = 9
    """From the tenth release on, a release is a try."""

    # Sizes.
    body_bytes_max: int = 1_048_576
    """Payload, result, checkpoint or text of one command."""
    frame_bytes_max: int = 1_310_720
    """One request or WebSocket frame: a full body and its envelope."""
    json_levels_max: int = 64
    """Levels of nesting in any JSON; `too_large`."""
    text_chars_max: int = 10_000
    """Characters of a title, a status, a reason, a question, a note; `invalid_request`."""
    name_chars_max: int = 64
    """Characters of a capability's name; `invalid_request`."""
    key_chars_max: int = 256
    """Characters of an idempotency key and of other names; `invalid_request`."""
    legs_max: int = 32
    """Handoffs after the first in one chain, or in one line along `parent_id`."""
    visits_per_agent_max: int = 3
    """Times that one agent may be asked in such a line; `loop_detected`."""
    members_max: int = 100
    """Members of one group; `invalid_request`."""
    escalation_steps_max: int = 16
    """Escalation steps of one offer; `invalid_request`."""
    watchers_max: int = 64
    """Watchers of one offer; `invalid_request`."""
    queued_acks_max: int = 1_000
    """Queued acknowledgements of one agent that are in force; one more is `limit_reached`."""
    steps_max: int = 1_000
    """Recorded steps of one handoff."""
    answers_max: int = 100
    """Questions that one handoff may ask."""
    capabilities_max: int = 256
    """Capabilities in one manifest; `invalid_request`."""
    schema_bytes_max: int = 65_536
    """One schema of a manifest; `invalid_request`."""
    schema_expanded_max: int = 10_000
    """Subschemas that one schema applies to one value, references followed; `invalid_request`."""
    schema_steps_max: int = 2_000_000
    """Steps of checking one payload or result, some 20 ns each; `payload_invalid`, `result_invalid`."""
    schema_error_bytes_max: int = 100_000
    """Bytes of all errors that a payload or result may have, up to which a refusal names them."""
    duration_ms_max: int = 3_660 * DAY
    """The longest time that anything may take; `invalid_request`."""

    # Manifests and finding agents.
    tags_max: int = 64
    concurrency_max: int = 10_000
    regex_bytes_max: int = 262_144
    """One pattern of a schema, compiled."""
    shape_bytes_max: int = 8_192
    """A shape to find agents by: it has to fit into an address."""
    ghost_after_ms: int = DAY
    """Silence that makes a ghost of an agent which does not say how often it is heard of."""
    observations_max: int = 100
    """The outcomes of one agent and capability that count: the last ones."""
    observations_min: int = 20
    """Fewer outcomes than this are not enough to judge anybody by."""
    observations_kept_ms: int = 30 * SECOND
    """How much of what was observed a crash may take away."""
    candidates_fresh_max: int = 64
    """So many candidates are all looked at for every handoff; of more, the best lately."""
    candidates_kept_ms: int = SECOND
    """How long "lately" is; in discovery, once more for every thousand of them."""
    reasons_max: int = 100
    """Candidates whose reason is told where none will do."""

    # Batches, pages and waits.
    batch_commands_max: int = 512
    """Commands in one commit; more go into the next."""
    deliveries_max: int = 256
    """Deliveries at once to one taker; `invalid_request`."""
    page_items_max: int = 500
    """Items of one page; a greater `limit` is read as this."""
    page_items: int = 100
    """Items of one page, where the request does not say."""
    wait_ms_max: int = 120 * SECOND
    """How long one request may wait; a longer `wait` is read as this."""
    queue_commands_max: int = 20_000
    """Commands waiting for a commit; more are refused with `queue_full`."""
    queue_commands_per_agent_max: int = 10_000
    """Of one agent; more are refused with `queue_full`. Agents have their commands committed in turn."""
    credit_max: int = 10_000
    """Deliveries that one connection may have in flight."""
    page_bytes_max: int = 4_194_304
    """Bytes of bodies after which a page ends, whatever its `limit`; its cursor goes on from there."""
    reads_per_agent_max: int = 4
    """Answers with bodies that are made for one agent at a time; more wait in line."""
    reads_waiting_per_agent_max: int = 4_096
    """Requests of one agent that wait in that line, or for its share of time; `queue_full`."""
    costly_percent: int = 25
    """Share of the relay's time for one agent's requests that take over 5 ms each; more wait."""
    waits_per_agent_max: int = 20_000
    """Requests of one agent that wait for a handoff to get somewhere; `queue_full`."""
    polls_per_agent_max: int = 1_000
    """Requests of one agent that wait for work, its inbox or the log; `queue_full`."""
    outgoing_bytes_max: int = 4_194_304
    """Bytes waiting for one slow WebSocket reader before it is closed with 1013: come back."""
    outgoing_bytes_per_agent_max: int = 33_554_432
    """Bytes waiting to be read by one agent; a large answer beyond it is refused with `queue_full`."""
    outgoing_bytes_per_relay_max: int = 268_435_456
    """Of all agents; beyond it, each may have `outgoing_bytes_max`."""

    incoming_bytes_per_agent_max: int = 33_554_432
    """Bytes of one agent's requests that are not complete, or not read yet; `queue_full`."""
    incoming_bytes_per_relay_max: int = 268_435_456
    """Of all agents; beyond it, each may have one frame on its way."""

    # Connections.
    connections_max: int = 20_000
    """Open connections of one relay. Beyond it, those without a token are closed, oldest first."""
    connections_per_agent_max: int = 500
    """Open connections of one agent, half of what there is room for at most; `queue_full`."""
    keep_alive_ms: int = 75 * SECOND
    """How long a connection over which a valid token came may be idle between two requests."""
    keep_alive_unproven_ms: int = 5 * SECOND
    """How long any other connection may be."""

    # Backpressure: what one requester, and what one inbox, may have waiting. Refused, not dropped.
    open_handoffs_max: int = 100_000
    """Unfinished handoffs of one requester; one more is refused with `queue_full`."""
    inbox_handoffs_max: int = 100_000
    """Unfinished handoffs of one recipient; one more is refused with `queue_full`."""
    open_bytes_per_agent_max: int = 1_073_741_824
    """Bytes of one requester's unfinished handoffs with large bodies; `queue_full`."""
    open_bytes_per_relay_max: int = 8_589_934_592
    """Of all requesters of one node; beyond it, each may have `open_bytes_reserved`."""
    open_bytes_reserved: int = 16_777_216
    """What one requester may have, whatever others have."""
    left_bytes_max: int = 33_554_432
    """Steps, answers and checkpoint of one handoff, which come with a delivery; `limit_reached`."""
    offers_per_second_max: float = 20_000.0
    """Of one agent; more are refused with `rate_limited`."""
    commands_per_second_max: float = 100_000.0
    """Of one agent, heartbeats apart; more are refused with `rate_limited`."""
    sign_ins_per_second_max: float = 10.0
    """Codes of links that one address may try; more are refused with `rate_limited`."""
    burst_seconds: float = 2.0
    """How many seconds' worth of its rate an agent may ask for at once."""
    full_retry_seconds: float = 5.0
    """What a requester is told to wait when it, or the inbox, has too much waiting."""

    # Callers without a token, at the A2A address of an agent that was opened to them.
    anonymous_calls_per_second_max: float = 20.0
    """Of one address; more are refused with `rate_limited`."""
    anonymous_open_handoffs_max: int = 1_000
    """Unfinished handoffs of all of them in one team; one more is refused with `queue_full`."""
    anonymous_request_bytes_max: int = 262_144
    """One request of one of them; `too_large`."""
    anonymous_waits_max: int = 256
    """Answers and streams that all of them wait for at a time; `rate_limited`."""
    anonymous_name_chars_min: int = 16
    """Characters of a key or a context that one of them names: others must not guess it."""
    grpc_calls_max: int = 1_000
    """Calls over gRPC at a time; more are refused with RESOURCE_EXHAUSTED."""

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

    tokens_per_agent_max: int = 100
    """Good tokens of one agent beyond which it makes no more for itself: `limit_reached`."""

    # Talk.
    topics_max: int = 10_000
    """Topics of one team that anybody hears of."""
    talk_open_ms: int = DAY
    """How long a message or a status waits in an inbox; it stays in the log."""

    # Triggers.
    triggers_max: int = 1_000
    """Rules of one team."""

    # Outlets.
    outlets_max: int = 1_000
    """Outlets of one team."""

    # Keys and joining.
    keys_per_agent_max: int = 16
    """Keys of one agent that are good at a time; rotating once more waits for one to expire."""
    invitations_max: int = 1_000
    """Open invitations of one team."""
    invitation_ms_max: int = 30 * DAY
    links_max: int = 1_000
    """Links of one team that sign in, or did and still count; one more is `limit_reached`."""
    link_ms_max: int = 30 * DAY
    sign_in_ms: int = 12 * HOUR
    """How long the bearer of a sign-in link counts after it was redeemed."""
    bearers_max: int = 10_000
    """Verified bearer tokens that are remembered until they expire."""
    allow_rules_max: int = 1_000

    # Webhooks.
    webhooks_per_handoff_max: int = 16
    """Places that hear of one handoff over HTTP; one more is refused with `limit_reached`."""
    webhook_ms_max: int = 24 * HOUR
    """How long the relay tries to tell one of them something before it gives up, and notes that."""

    # Memory of what was done.
    remember_ms: int = 7 * DAY
    """Keys outlive the settlement of their handoff, and command ids their command, by this."""
    recognise_ms: int = 10 * MINUTE
    """How long a turn-based sender's offer is known by its content alone, while it is unfinished."""


DEFAULT: Final = Limits()
