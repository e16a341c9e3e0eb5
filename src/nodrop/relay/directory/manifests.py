"""Reading a manifest as it was sent: its schemas compile, its bounds hold, nothing is fetched.

A manifest comes from a stranger: every size in it is bounded, a reference out of it is refused,
and patterns are compiled to run in linear time or not at all.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import jsonschema_rs
import msgspec

from nodrop.model.contract import MODES, Availability, Capability, Manifest, json_schema
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.model.limits import DEFAULT, SECOND, Limits
from nodrop.model.names import is_name
from nodrop.model.standing import Expectation
from nodrop.protocol.decoding import decode_strict
from nodrop.protocol.times import parse_time
from nodrop.relay.directory.schema_cost import SchemaCost
from nodrop.relay.directory.schema_graph import ExpensiveSchemaError

_TIMEOUT_SECONDS_MAX: Final = 1e9
"""About 30 years."""
_NOBODY_SAID: Final = Expectation()


def read_manifest(data: bytes, agent: str, limits: Limits) -> Manifest:
    """Return the relay's reading of a manifest as sent."""
    manifest = decode_strict(data, Manifest, limits)
    problems = list(_manifest_problems(manifest, agent, limits))
    if problems:
        error = InvalidRequestError("the manifest is not valid", errors=tuple(problems))
        if any("_schema" in problem.path for problem in problems):
            error.suspect = "schema"  # what reaches out, or would take for ever, does not compile
        raise error
    return manifest


def compile_schema(
    declared: dict[str, Any], limits: Limits = DEFAULT
) -> jsonschema_rs.Draft202012Validator:
    """Return a checker for what a manifest declares. Nothing is fetched; regexes run in linear time."""
    size = limits.regex_bytes_max
    return jsonschema_rs.Draft202012Validator(
        json_schema(declared),
        offline=True,
        pattern_options=jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=size),
    )


def schema_problems(declared: dict[str, Any], path: str, limits: Limits) -> Iterator[Problem]:
    """Yield what is wrong with a schema, at most one thing."""
    if len(msgspec.json.encode(declared)) > limits.schema_bytes_max:
        yield Problem(path=path, message=f"larger than {limits.schema_bytes_max} bytes")
        return
    try:
        SchemaCost(json_schema(declared), limits)  # first: some schemas take too long to compile
        compile_schema(declared, limits)
    except ExpensiveSchemaError as error:
        yield Problem(path=f"{path}{error.path}"[:200], message=str(error))
    except (jsonschema_rs.ValidationError, ValueError) as error:
        yield Problem(path=path, message=str(error).split("\n", 1)[0][:200])


def expectation(availability: Availability | None) -> Expectation:
    """Return when an agent with such a manifest is to be heard of."""
    if availability is None:
        return _NOBODY_SAID
    beat, at = availability.heartbeat_seconds, availability.next_active_at
    with suppress(ValueError):  # one published before times were checked says nothing
        return Expectation(
            heartbeat_ms=None if beat is None else round(beat * SECOND),
            next_active_at=None if at is None else parse_time(at),
            on_demand=availability.mode == "on_demand",
        )
    return _NOBODY_SAID


def _manifest_problems(manifest: Manifest, agent: str, limits: Limits) -> Iterator[Problem]:
    if manifest.agent_id != agent:
        yield Problem(path="agent_id", message=f"expected {agent!r}, the agent it is published for")
    yield from _text_problems(manifest.description, "description", limits)
    yield from _text_problems(manifest.discovery_endpoint, "discovery_endpoint", limits)
    yield from _tag_problems(manifest.tags, "tags", limits)
    yield from _concurrency_problems(manifest.concurrency, "concurrency", limits)
    if manifest.availability is not None:
        yield from _availability_problems(manifest.availability, limits)
    if len(manifest.capabilities) > limits.capabilities_max:
        yield Problem(path="capabilities", message=f"at most {limits.capabilities_max}")
        return
    seen: set[str] = set()
    for index, capability in enumerate(manifest.capabilities):
        where = f"capabilities[{index}]"
        if capability.name in seen:
            yield Problem(path=f"{where}.name", message=f"{capability.name!r} is declared twice")
        seen.add(capability.name)
        yield from _capability_problems(capability, where, limits)


def _capability_problems(capability: Capability, where: str, limits: Limits) -> Iterator[Problem]:
    if not is_name(capability.name, chars_max=limits.name_chars_max):
        message = f"1 to {limits.name_chars_max} printable ASCII characters"
        yield Problem(path=f"{where}.name", message=message)
    timeout, sla = capability.timeout_seconds, capability.reliability_sla
    if timeout is not None and not 0 < timeout < _TIMEOUT_SECONDS_MAX:
        yield Problem(path=f"{where}.timeout_seconds", message="must be more than 0")
    if sla is not None and not 0 <= sla <= 1:
        yield Problem(path=f"{where}.reliability_sla", message="must be between 0 and 1")
    yield from _text_problems(capability.description, f"{where}.description", limits)
    yield from _tag_problems(capability.tags, f"{where}.tags", limits)
    yield from _concurrency_problems(capability.concurrency, f"{where}.concurrency", limits)
    for field in ("input_schema", "output_schema"):
        declared: dict[str, Any] | None = getattr(capability, field)
        if declared is not None:
            yield from schema_problems(declared, f"{where}.{field}", limits)


def _text_problems(text: str | None, path: str, limits: Limits) -> Iterator[Problem]:
    if text is not None and len(text) > limits.text_chars_max:
        yield Problem(path=path, message=f"at most {limits.text_chars_max} characters")


def _tag_problems(tags: tuple[str, ...], path: str, limits: Limits) -> Iterator[Problem]:
    if len(tags) > limits.tags_max:
        yield Problem(path=path, message=f"at most {limits.tags_max}")
        return
    for index, tag in enumerate(tags):
        if not is_name(tag, chars_max=limits.name_chars_max) or "," in tag:
            message = f"1 to {limits.name_chars_max} printable ASCII characters, and no comma"
            yield Problem(path=f"{path}[{index}]", message=message)


def _concurrency_problems(value: int | None, path: str, limits: Limits) -> Iterator[Problem]:
    if value is not None and not 1 <= value <= limits.concurrency_max:
        yield Problem(path=path, message=f"must be between 1 and {limits.concurrency_max}")


def _availability_problems(availability: Availability, limits: Limits) -> Iterator[Problem]:
    if availability.mode not in MODES:
        message = f"expected one of {', '.join(MODES)}"
        yield Problem(path="availability.mode", message=message)
    beat, most = availability.heartbeat_seconds, limits.duration_ms_max / SECOND
    if beat is not None and not limits.heartbeat_seconds_min <= beat <= most:
        message = f"must be between {limits.heartbeat_seconds_min:g} and {most:g}"
        yield Problem(path="availability.heartbeat_seconds", message=message)
    if availability.next_active_at is not None:
        try:
            parse_time(availability.next_active_at)
        except ValueError:
            message = "expected a time in ISO 8601 with an offset"
            yield Problem(path="availability.next_active_at", message=message)
