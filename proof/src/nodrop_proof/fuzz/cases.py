"""What the OpenAPI document cannot say about requests, said to the generator of cases.

A case that the document calls valid must be one that the relay accepts. Some rules tie fields
together or depend on what happened before, others are about how a value is spelled. A case is
changed to keep them before it is sent, and only where what is changed was valid by itself: a case
that is meant to be wrong stays wrong. schemathesis holds what is sent against the document again.
"""

import itertools
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeGuard, cast

import schemathesis
from hypothesis import strategies as st

from nodrop.model.limits import DEFAULT
from nodrop.protocol.fields import (
    ADDRESS_FORMAT,
    AGENT_ADDRESS_FORMAT,
    AGO_FORMAT,
    CONDITION_FORMAT,
    DUE_FORMAT,
    DUES,
    DURATION_FORMAT,
    TIMES,
)
from nodrop.protocol.operations import OPERATIONS
from nodrop.protocol.requests import OfDelivery
from nodrop.protocol.times import parse_duration, parse_time

Case = schemathesis.Case[Any]
Fields = dict[str, Any]

WAIT_SECONDS_MAX: Final = 0.02
"""Nobody waits longer for something to happen: there are many requests to make."""

_KEY_HEADER: Final = "Idempotency-Key"
_AGENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_NAME: Final = re.compile(r"[!-~](?:[ -~]{0,254}[!-~])?", re.ASCII)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_FREE: Final = frozenset(
    {
        *("payload", "observations", "parameters", "covariates", "metadata"),
        *("result", "checkpoint", "answer", "value", "data"),
    }
)
"""Fields that hold any JSON, within the relay's bounds."""
_WHOLE_MAX: Final = 2**63
_TEXT_CHARS_MAX: Final = 64
_OF_DELIVERY: Final = frozenset(
    f"{operation.method} /{operation.path}"
    for operation in OPERATIONS.values()
    if issubclass(operation.request, OfDelivery)
)


_AFTER_THE_END: Final = ("overdue", "dead")
_CONDITIONS: Final = ("true", "event.data.n > 3", "event.type.startsWith('bug') || false")
_ADDRESSES: Final = ("https://hooks.example.com/in", "http://hooks.example.com:8080/a?b=c")
_AGENT_ADDRESSES: Final = ("https://agents.invalid/coder", "http://agents.invalid:8080/a?b=c", "")
_OTHER: Final = "colleague"
"""An agent that is not the caller."""
_MS_MAX: Final = {"expires": DEFAULT.invitation_ms_max}
"""Of times that must not be as long as others."""


class Rules:
    """The rules, for cases that are sent as one agent."""

    def __init__(self, agent: str, *, year: int) -> None:
        """Let due times lie in `year`, which is to come."""
        self._agent = agent
        self._year = year
        self._numbers = itertools.count()

    def register(self) -> None:
        """Have schemathesis keep them, in this process."""
        due = st.one_of(_durations(), _moments(self._year))
        schemathesis.openapi.format(DURATION_FORMAT, _durations())
        schemathesis.openapi.format(DUE_FORMAT, due)
        schemathesis.openapi.format(CONDITION_FORMAT, st.sampled_from(_CONDITIONS))
        schemathesis.openapi.format(AGO_FORMAT, due)  # also times that are still to come
        schemathesis.openapi.format(ADDRESS_FORMAT, st.sampled_from(_ADDRESSES))
        schemathesis.openapi.format(AGENT_ADDRESS_FORMAT, st.sampled_from(_AGENT_ADDRESSES))

        def before_call(_context: schemathesis.HookContext, case: Case, _kwargs: Fields) -> None:
            self.amend(case)

        cast("Any", schemathesis).hook(before_call)  # known by its name

    def amend(self, case: Case) -> None:
        """Have `case` keep the rules."""
        label = case.operation.label
        if case.query:
            query = _timed(dict(cast("Mapping[str, Any]", case.query)), self._year)
            case.query = _past(query) if label == "GET /log" else query
        if label in _OF_DELIVERY and not isinstance(case.body, dict | list | str | int | float):
            case.body, case.media_type = {}, "application/json"
        if isinstance(case.body, dict):
            body: Fields = _fitting(_timed(_spelled(cast("Fields", case.body)), self._year))
            self._name_once(case, body)
            self._fit(label, body, case.path_parameters)
            case.body = body
        else:
            self._name_once(case, {})

    def _name_once(self, case: Case, body: Fields) -> None:
        """Give every command an id of its own, the same in header and body: no repeats."""
        own = f"{case.id}-{next(self._numbers)}"
        headers = cast("Fields", case.headers)
        said = headers.get(_KEY_HEADER) if headers else None
        if isinstance(said, str) and _NAME.fullmatch(said.strip('"')):
            if _about_headers(case):  # which one of them is wrong or missing would be forgotten
                own = said.strip('"')
            else:
                headers[_KEY_HEADER] = own
        if _is(body.get("command_id"), _NAME):
            body["command_id"] = own

    def _fit(self, label: str, body: Fields, path: Fields) -> None:
        match label:
            case "POST /handoffs":
                self._address(body)
            case "POST /groups":
                _join(body)
            case "PUT /triggers/{name}":
                _agree(body.get("offer"))
            case "POST /triggers/test" if isinstance(body.get("rule"), dict):
                _agree(body["rule"].get("offer"))
            case "POST /messages":
                _send(body)
            case "POST /contracts":
                _shape(body, "input", "output")
            case "PUT /agents/{name}":
                _publish(body, path.get("name"))
            case "POST /statuses":
                _supersede_nothing(body)
            case _ if label in _OF_DELIVERY and body.get("attempt") is None:
                body["attempt"] = 1  # which may be left out before the first delivery only
            case _:
                pass

    def _address(self, offer: Fields) -> None:
        """Have half of the offers go to the caller, so that there is work to take; and no loops."""
        to = offer.get("to")
        if _is(to, _AGENT) and zlib.crc32(to.encode()) % 2:
            offer["to"] = self._agent
        _agree(offer)


def _durations() -> st.SearchStrategy[str]:
    count = st.integers(1, 3_000)
    units = ("ms", "s", "sec", "seconds", "m", "min", "minutes", "h", "hours", "d", "days", "Hours")
    words = st.builds("{}{}{}".format, count, st.sampled_from(("", " ")), st.sampled_from(units))
    two = st.builds("{}h {}m".format, st.integers(1, 48), st.integers(0, 59))
    iso = st.builds("P{}DT{}H{}M".format, st.integers(0, 30), count, count)
    return st.one_of(words, two, iso, count.map(str), st.just("1.5e2"), st.just(" 1 week "))


def _moments(year: int) -> st.SearchStrategy[str]:
    offsets = st.sampled_from(("Z", "+00:00", "-11:30", ".123Z"))
    days = st.integers(1, 28)
    return st.builds(
        f"{year}-{{:02}}-{{:02}}T12:00:00{{}}".format, st.integers(1, 12), days, offsets
    )


def _about_headers(case: Case) -> bool:
    meta = case.meta
    location = getattr(meta.phase.data, "parameter_location", None) if meta is not None else None
    return location is not None and location.is_in_header


def _is(value: Any, pattern: re.Pattern[str]) -> TypeGuard[str]:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return `value` with everything in it that is neither object nor array changed."""
    match value:
        case dict():
            return {name: _changed(v, change) for name, v in cast("Fields", value).items()}
        case list():
            return [_changed(item, change) for item in cast("list[Any]", value)]
        case _:
            return change(value)


def _spelled(fields: Fields) -> Fields:
    """Return `fields` with whole numbers written as such: a schema takes 2.0 for an integer."""

    def spell(value: Any) -> Any:
        whole = isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE_MAX
        return int(value) if whole else value

    return _changed(fields, spell)


def _fitting(value: Any) -> Any:
    """Return `value` with what may be any JSON within the relay's bounds, wherever it is in it."""
    match value:
        case dict():
            return {
                name: _in_64_bits(item) if name in _FREE else _fitting(item)
                for name, item in cast("Fields", value).items()
            }
        case list():
            return [_fitting(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _in_64_bits(value: Any) -> Any:
    def fit(value: Any) -> Any:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return value % _WHOLE_MAX if is_number else value

    return _changed(value, fit)


def _timed(value: Any, year: int) -> Any:
    """Return `value` with every time in it one that can be read and is to come, and no long wait."""
    match value:
        case dict():
            fields = cast("Fields", value)
            return {
                name: item
                if name in _FREE
                else _time(name, item, year)
                if name in TIMES and isinstance(item, str | int | float)
                else _timed(item, year)
                for name, item in fields.items()
            }
        case list():
            return [_timed(item, year) for item in cast("list[Any]", value)]
        case _:
            return value


def _time(name: str, value: str | float, year: int) -> str | float:
    if isinstance(value, str) and not 1 <= len(value) <= _TEXT_CHARS_MAX:
        return value
    if name in DUES and isinstance(value, str) and value[4:5] == "-":
        to_come = value.startswith(str(year)) and name not in _MS_MAX
        return value if to_come else "4h"  # links bring times that have passed
    try:
        ms = parse_duration(value)
    except ValueError:
        return "4h" if isinstance(value, str) else value
    if name == "wait" and WAIT_SECONDS_MAX * 1_000 < ms <= DEFAULT.duration_ms_max:
        return WAIT_SECONDS_MAX
    most = _MS_MAX.get(name, DEFAULT.duration_ms_max)
    return "4h" if isinstance(value, str) and not 0 < ms <= most else value


def _past(query: Fields) -> Fields:
    """Return what is asked of the log with times that can be read."""
    for name in ("since", "until"):
        value = query.get(name)
        if isinstance(value, str) and 1 <= len(value) <= _TEXT_CHARS_MAX:
            query[name] = value if _is_past(value) else "4h"
    return query


def _is_past(value: str) -> bool:
    for read in (parse_duration, parse_time):
        try:
            read(value)
        except (ValueError, OverflowError):
            continue
        return True
    return False


def _agree(offer: Any) -> None:
    """Have an offer's fields agree: a contract is with somebody; and no loops."""
    if isinstance(offer, dict):
        fields = cast("Fields", offer)
        if fields.get("to") is None and _is(fields.get("contract_digest"), _DIGEST):
            fields["contract_digest"] = None
        _number(fields.get("then"), "to", _AGENT, "leg_{}")


def _join(group: Fields) -> None:
    """Have a group's members be able to join it."""
    _number(group.get("then"), "to", _AGENT, "leg_{}")
    offers = group.get("offers")
    if not isinstance(offers, dict):
        return
    members = cast("Fields", offers)
    for offer in members.values():
        _agree(offer)
        _come_at_once(offer)
    quorum = group.get("quorum")
    if group.get("join") == "quorum" and (
        quorum is None or (_counts(quorum) and len(members) < quorum <= DEFAULT.members_max)
    ):
        group["quorum"] = 1


def _come_at_once(offer: Any) -> None:
    """Have the steps that a member's end calls for wait for nothing else: it settles when it ends."""
    steps = cast("Fields", offer).get("escalation") if isinstance(offer, dict) else None
    for step in _objects(steps):
        after = step.get("after")
        lasts = isinstance(after, int | float) and not isinstance(after, bool) and after >= 0
        if step.get("when") in _AFTER_THE_END and (lasts or isinstance(after, str)):
            step["after"] = 0


def _send(message: Fields) -> None:
    """Have a message be for somebody: who is in a thread or a handoff is not known here."""
    _supersede_nothing(message)
    if message.get("to") is None and (message.get("thread") or message.get("about")) is not None:
        message["to"] = _OTHER


def _supersede_nothing(said: Fields) -> None:
    if _counts(said.get("supersedes")):
        said["supersedes"] = None  # only what the caller said before can be


def _publish(manifest: Fields, agent: Any) -> None:
    """Have a manifest be the path's agent's, its capabilities differ, its schemas be schemas."""
    if _is(manifest.get("agent_id"), _AGENT):
        manifest["agent_id"] = agent
    capabilities = manifest.get("capabilities")
    _number(capabilities, "name", _NAME, "capability_{}")
    for capability in _objects(capabilities):
        _shape(capability, "input_schema", "output_schema")


def _shape(fields: Fields, *names: str) -> None:
    """Have an object that tells what is sent or answered be a schema."""
    for name in names:
        if isinstance(fields.get(name), dict):
            fields[name] = {"query": "string", "depth": "int"}


def _number(items: Any, field: str, pattern: re.Pattern[str], spelling: str) -> None:
    """Have a field differ from item to item."""
    for number, item in enumerate(_objects(items)):
        if _is(item.get(field), pattern):
            item[field] = spelling.format(number)


def _objects(items: Any) -> Iterator[Fields]:
    """Yield the objects in what may be an array."""
    for item in cast("list[Any]", items) if isinstance(items, list) else ():
        if isinstance(item, dict):
            yield cast("Fields", item)
