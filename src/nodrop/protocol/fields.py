"""What the OpenAPI document says about fields beyond their types: patterns, bounds, choices.

Described, not enforced: requests are checked by `relay.intake`, which tells more about what is
wrong than a schema could. `nodrop prove fuzz` holds the two against each other.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from nodrop.model.contract import MODES
from nodrop.model.handoff import Priority, Rung, State, When
from nodrop.model.limits import DAY, DEFAULT, SECOND
from nodrop.model.mail import Kind
from nodrop.model.names import AGENT_ID
from nodrop.model.policy import Signatures
from nodrop.protocol.identity.keys import JWS_CHARS_MAX
from nodrop.protocol.requests import MARKS

Schema = dict[str, Any]

DURATION: Final = "Duration"
SOME_TIME: Final = "PositiveDuration"
DUE: Final = "Due"
SOON: Final = "DueSoon"
AGO: Final = "TimeAgo"
DURATION_FORMAT: Final = "duration-in-words"
DUE_FORMAT: Final = "time-or-duration"
AGO_FORMAT: Final = "time-or-duration-ago"
"""Texts of a grammar that no pattern could say in a line; `protocol.times` reads them."""
CONDITION_FORMAT: Final = "cel"
ADDRESS_FORMAT: Final = "outlet-address"
"""`https://…` of a webhook, or an Apprise URL for people."""
AGENT_ADDRESS_FORMAT: Final = "agent-address"
"""`https://…` of an A2A agent, without a user; or nothing."""

_AGENT: Final[Schema] = {"pattern": f"^{AGENT_ID}$"}
_AGENT_OR_ANY: Final[Schema] = {"pattern": rf"^(?:\*|{AGENT_ID})$"}
_NAME: Final[Schema] = {"pattern": "^[!-~](?:[ -~]{0,254}[!-~])?$"}
_TAG: Final[Schema] = {"pattern": "^[!-+\\--~](?:[ -+\\--~]{0,62}[!-+\\--~])?$"}
_TEXT: Final[Schema] = {"maxLength": DEFAULT.text_chars_max}
_WORDS: Final[Schema] = {**_TEXT, "pattern": r"[^\s\x1c-\x1f\x85]"}
"""A text that says something."""
_B64: Final = "[A-Za-z0-9+/]"
_POSITIVE: Final[Schema] = {"minimum": 1}
_LATER: Final[Schema] = {"const": None, "description": "Not supported by this release."}
_OF_GROUP: Final[Schema] = {"const": None, "default": None, "description": "The group's to say."}
_OF_EVENT: Final[Schema] = {
    "const": None,
    "default": None,
    "description": "It would be the same for every event.",
}
_INTEGER: Final[Schema] = {"minimum": -(2**63), "maximum": 2**63 - 1}

_FIELDS: Final[Mapping[str, Schema]] = {
    **dict.fromkeys(("from", "to", "notify", "agent", "agent_id"), _AGENT),
    **dict.fromkeys(
        (
            *("command_id", "idempotency_key", "capability", "correlation_id", "parent_id"),
            *("process", "code"),
        ),
        _NAME,
    ),
    **dict.fromkeys(MARKS, _NAME),
    **dict.fromkeys(("trigger", "title", "expected_outcome", "status", "reason", "label"), _TEXT),
    **dict.fromkeys(("supersedes", "group"), _LATER),
    "signature": {
        "type": ["string", "null"],
        "maxLength": JWS_CHARS_MAX,
        "description": "A detached JWS over the request as sent.",
    },
    "after_hash": {"pattern": "^[0-9a-f]{8,64}$"},
    # 32 bytes; of the last of 43 characters, two bits spell nothing.
    "public_key": {"pattern": "^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"},
    "proof": {"maxLength": JWS_CHARS_MAX},
    "signatures": {"enum": [*Signatures]},
    "allow": {"maxItems": DEFAULT.allow_rules_max},
    "priority": {"enum": [*Priority]},
    "raise_priority": {"enum": [*Priority]},
    "when": {"enum": [*When]},
    "role": {"enum": ["agent", "observer", "operator"]},
    "of": {"enum": ["handoff", "chain"]},
    "join": {"enum": ["all", "any", "quorum"]},
    "quorum": {**_POSITIVE, "maximum": DEFAULT.members_max},
    "offers": {
        "minProperties": 1,
        "maxProperties": DEFAULT.members_max,
        "propertyNames": _NAME,
    },
    "until": {"enum": [*Rung, "blocked", "unblocked"]},
    "traceparent": {
        "pattern": "^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$"
    },
    "contract_digest": {"pattern": "^sha256:[0-9a-f]{64}$"},
    "reliability": {"minimum": 0, "maximum": 1},
    "concurrency": {**_POSITIVE, "maximum": DEFAULT.concurrency_max},
    "mode": {"enum": [*MODES]},
    "tags": {"maxItems": DEFAULT.tags_max, "items": {"type": "string", **_TAG}},
    "description": _TEXT,
    "discovery_endpoint": _TEXT,
    "watchers": {"maxItems": DEFAULT.watchers_max, "items": {"type": "string", **_AGENT}},
    "escalation": {"maxItems": DEFAULT.escalation_steps_max},
    "then": {"maxItems": DEFAULT.legs_max},
    "attempts_max": {**_POSITIVE, "maximum": DEFAULT.attempts_max_max},
    "position": {**_POSITIVE, "maximum": 1_000_000_000},
    "limit": _POSITIVE,
    "max": {**_POSITIVE, "maximum": DEFAULT.deliveries_max},
    "heartbeat_seconds": {
        "minimum": DEFAULT.heartbeat_seconds_min,
        "maximum": DEFAULT.heartbeat_seconds_max,
    },
    "factor": {"minimum": 1, "maximum": 100},
    "text": _WORDS,
    "composed_at": {"format": "date-time", "maxLength": 64},
    "question": _WORDS,
}
"""By the name of the field, whatever request it is in."""

_EXCEPTIONS: Final[Mapping[tuple[str, str], Schema]] = {
    ("CreateLink", "kind"): {"enum": ["sign_in", "view"]},
    ("RedeemLink", "code"): {},
    ("LegSpec", "on"): {"enum": ["completed", "failed"]},
    ("Block", "name"): _TEXT,
    ("AllowSpec", "from"): _AGENT_OR_ANY,
    ("AllowSpec", "to"): _AGENT_OR_ANY,
    ("Dismiss", "inbox"): _AGENT,
    ("PutOutlet", "inbox"): _AGENT,
    ("PutOutlet", "kind"): {"enum": ["webhook", "notify"]},
    ("PutOutlet", "kinds"): {"items": {"type": "string", "enum": [*Kind]}},
    ("PutOutlet", "secret"): {
        "pattern": f"^whsec_(?:{_B64}{{4}})*{_B64}{{2}}(?:{_B64}{{2}}|{_B64}=|==)$"
    },
    ("PutOutlet", "url"): {"maxLength": 2_000, "format": ADDRESS_FORMAT},
    ("SetReach", "a2a"): {"maxLength": 2_000, "format": AGENT_ADDRESS_FORMAT},
    ("SetReach", "token"): {"pattern": "^(?:[!-~](?:[ -~]*[!-~])?)?$"},
    ("Emit", "type"): _NAME,
    ("Emit", "event_id"): _NAME,
    ("Emit", "source"): _NAME,
    ("PutTrigger", "on"): {"pattern": r"^[!-)+-~]{1,200}\*?$"},
    ("TestTrigger", "trigger"): {"pattern": "^(?:[!-~](?:[ -~]{0,254}[!-~])?)?$"},
    ("TellStatus", "topic"): _NAME,
    ("Say", "thread"): _NAME,
    ("Say", "supersedes"): _POSITIVE,
    ("TellStatus", "supersedes"): _POSITIVE,
    ("GetLog", "text"): _TEXT,
    ("PutTrigger", "when"): {"minLength": 1, "maxLength": 1_000, "format": CONDITION_FORMAT},
    ("TellStatus", "status"): _WORDS,
    ("TellStatus", "text"): _TEXT,
    ("ListMessages", "from"): {},
    ("ListMessages", "thread"): {},
    ("ListMessages", "topic"): {},
    ("ListKeys", "agent"): {},
    ("ListHandoffs", "state"): {"enum": [*State]},
    ("ListHandoffs", "from"): {},
    ("ListHandoffs", "to"): {},
    ("ListHandoffs", "correlation_id"): {},
    ("GetLog", "correlation_id"): {},
    ("ListAgents", "capability"): {},
    ("ListAgents", "tags"): {},
    ("Capability", "name"): {"pattern": "^[!-~](?:[ -~]{0,62}[!-~])?$"},
    ("Capability", "timeout_seconds"): {"exclusiveMinimum": 0, "exclusiveMaximum": 1e9},
    ("Capability", "reliability_sla"): {"minimum": 0, "maximum": 1},
    ("Manifest", "capabilities"): {"maxItems": DEFAULT.capabilities_max},
    ("Availability", "heartbeat_seconds"): {
        "minimum": DEFAULT.heartbeat_seconds_min,
        "maximum": DEFAULT.duration_ms_max // SECOND,
    },
    ("Availability", "next_active_at"): {"format": "date-time"},
}

_BLANKS: Final[Mapping[str, Schema]] = {
    "topics/{name}": _NAME,
    "triggers/{name}": _NAME,
    "outlets/{name}": _NAME,
    "agents/{name}": _AGENT,
    "agents/{name}/reach": _AGENT,
    "handoffs/{id}/steps/{name}": _NAME,
}
"""What a path's `{name}` looks like."""

_ONE_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "Offer": ("to", "capability"),
    "LegSpec": ("to", "capability"),
    "EscalationSpec": ("notify", "reassign", "raise_priority"),
    "ElsewhereSpec": ("to", "capability"),
    "Reassign": ("to", "capability"),
    "Say": ("to", "thread", "about"),
    "Counter": ("deadline", "update_every", "accept_within", "priority", "timeout"),
}
"""Requests of which at least one of these fields must say something."""

_OFFERS_WITHIN: Final[Mapping[str, Mapping[str, Schema]]] = {
    "MemberOffer": dict.fromkeys(
        (
            *("command_id", "idempotency_key", "parent_id", "correlation_id", "group", "from"),
            "signature",
        ),
        _OF_GROUP,
    ),
    "RuleOffer": {
        **dict.fromkeys(("command_id", "idempotency_key", "group", "signature"), _OF_EVENT),
        "turn_based": {**_OF_EVENT, "const": False, "default": False},
    },
}
"""Offers that are part of something else, which says these fields for them."""

_DURATIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("after", "wait", "overlap"), DURATION),
    **dict.fromkeys(("accept_within", "update_every", "timeout", "first", "max"), SOME_TIME),
}
DUES: Final = frozenset({"deadline", "eta", "next_update", "expires", "expires_in"})
TIMES: Final = DUES | _DURATIONS.keys()
"""Fields that hold a due time; and these, or a duration."""
_OTHER_TIMES: Final[Mapping[tuple[str, str], str]] = {
    ("CreateInvitation", "expires"): SOON,
    ("CreateLink", "expires_in"): SOON,
    ("GetLog", "since"): AGO,
    ("GetLog", "until"): AGO,
    ("LegSpec", "deadline"): SOME_TIME,  # counted from its start
}
_SECONDS_MAX: Final = DEFAULT.duration_ms_max // SECOND
_AGO_SECONDS_MAX: Final = 10**12 - 1
"""Before there was any log, but a duration still."""


def _timed(title: str, description: str, examples: list[Any], **bounds: Any) -> Schema:
    text = {"type": "string", "minLength": 1, "maxLength": 64, "format": bounds.pop("format")}
    number = {"type": "number", "maximum": _SECONDS_MAX, **bounds}
    return {
        "title": title,
        "description": description,
        "examples": examples,
        "anyOf": [text, number],
    }


SHARED: Final[dict[str, Schema]] = {
    DURATION: _timed(
        DURATION,
        "A length of time, in words, as ISO 8601 or in seconds.",
        ["4h", "4 hours", "1h 30m", "PT4H", 90],
        format=DURATION_FORMAT,
        minimum=0,
    ),
    SOME_TIME: _timed(
        SOME_TIME,
        "A length of time above zero, in words, as ISO 8601 or in seconds.",
        ["4h", "4 hours", "1h 30m", "PT4H", 90],
        format=DURATION_FORMAT,
        exclusiveMinimum=0,
    ),
    DUE: _timed(
        DUE,
        "A point in time to come: ISO 8601 with an offset, or a duration from now.",
        ["4h", "4 hours", "PT4H", 90],
        format=DUE_FORMAT,
        exclusiveMinimum=0,
    ),
    SOON: _timed(
        SOON,
        f"A point in time of the next {DEFAULT.invitation_ms_max // DAY} days: "
        "ISO 8601 with an offset, or a duration from now.",
        ["4h", "4 hours", "PT4H", 90],
        format=DUE_FORMAT,
        exclusiveMinimum=0,
        maximum=DEFAULT.invitation_ms_max // SECOND,
    ),
    AGO: _timed(
        AGO,
        "A point in time: ISO 8601 with an offset, or how long ago.",
        ["4h", "4 hours", "PT4H", 90],
        format=AGO_FORMAT,
        minimum=0,
        maximum=_AGO_SECONDS_MAX,
    ),
}
"""Schemas that fields refer to."""


def describe(components: dict[str, Schema], requests: Iterable[str]) -> None:
    """Complete `components`; those called `requests` are what callers send."""
    for name in requests:
        component = components[name]
        for field, schema in component["properties"].items():
            component["properties"][field] = _described(name, field, schema)
        if name in _ONE_OF:
            component["anyOf"] = [
                {"required": [field], "properties": {field: {"not": {"type": "null"}}}}
                for field in _ONE_OF[name]
            ]
    components.update(SHARED)


def tell_offers_apart(components: dict[str, Schema]) -> None:
    """Describe the offers of groups and of rules, which cannot say everything that others can."""
    offer = components["Offer"]
    for name, said in _OFFERS_WITHIN.items():
        properties = {**offer["properties"], **said}
        components[name] = {**offer, "title": name, "properties": properties}
    members = components["OfferGroup"]["properties"]["offers"]
    members["additionalProperties"] = _reference("MemberOffer")
    components["PutTrigger"]["properties"]["offer"] = _reference("RuleOffer")


def needed(component: Schema) -> bool:
    """Whether a request cannot be empty."""
    return bool(component.get("required") or component.get("anyOf"))


def blank(path: str, name: str) -> Schema:
    """Return the schema of `{name}` in a path."""
    known = _BLANKS.get(path, {}) if name == "name" else {}
    return {"type": "string", "minLength": 1, **known}


def header() -> Schema:
    """Return the schema of `Idempotency-Key`, whose quotes around it are not part of the key."""
    return {"type": "string", "pattern": '^"*[!#-~](?:[ -~]{0,254}[!#-~])?"*$'}


def in_query(schema: Schema) -> Schema:
    """Return the schema of a query parameter: what is not said is left out, not null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"]
    if len(kinds) != 1:
        return schema
    return kinds[0]


def plain(schema: Any) -> Any:
    """Return a schema without `prefixItems`, which tools stumble over: a tuple is a short list."""
    match schema:
        case dict():
            made = {name: plain(value) for name, value in cast("Schema", schema).items()}
            if "prefixItems" in made:
                made["items"] = {"anyOf": made.pop("prefixItems")}
            return made
        case list():
            return [plain(item) for item in cast("list[Any]", schema)]
        case _:
            return schema


def _described(component: str, field: str, schema: Schema) -> Schema:
    kinds = {kind.get("type") for kind in schema.get("anyOf", [schema])}
    if (component, field) in _OTHER_TIMES:
        return _referring(_OTHER_TIMES[component, field], schema, kinds)
    if field in _DURATIONS and {"string", "number"} <= kinds:
        return _referring(_DURATIONS[field], schema, kinds)
    if field in DUES:
        return _referring(DUE, schema, kinds)
    known = _EXCEPTIONS.get((component, field), _FIELDS.get(field, {}))
    if known is _LATER:
        return {**_LATER, "default": None}
    if "anyOf" in schema:
        described = [_bounded(kind, known) for kind in schema["anyOf"]]
        return {**schema, "anyOf": described}
    return _bounded(schema, known)


def _referring(to: str, schema: Schema, kinds: set[str | None]) -> Schema:
    default = {"default": schema["default"]} if "default" in schema else {}
    reference = _reference(to)
    if "null" in kinds:
        return {"anyOf": [reference, {"type": "null"}], **default}
    return {**reference, **default}


def _reference(to: str) -> Schema:
    return {"$ref": f"#/components/schemas/{to}"}


def _bounded(schema: Schema, known: Schema) -> Schema:
    """Return `schema` with what is known of the field, as far as it is about its type."""
    match schema.get("type"):
        case "null":
            return schema
        case "integer":
            return {**schema, **_INTEGER, **known}
        case _:
            return {**schema, **known}
