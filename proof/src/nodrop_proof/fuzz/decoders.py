"""The functions that meet bytes from strangers first, each as a target for a fuzzer.

A target takes any bytes and returns what they mean; it raises what the function promises to raise,
and nothing else. Whoever feeds it counts any other exception as a defect.
"""

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from nodrop.model.errors import NodropError
from nodrop.model.limits import DEFAULT
from nodrop.protocol import canonical, requests, text
from nodrop.protocol.decoding import decode_plainly, decode_query, decode_strict, peek
from nodrop.protocol.operations import OPERATIONS
from nodrop.protocol.routes import find, split_team
from nodrop.protocol.times import (
    format_duration,
    format_time,
    parse_due,
    parse_duration,
    parse_time,
)
from nodrop.relay.intake import Intake
from nodrop.relay.relay import Caller
from nodrop.servers.websocket import frames
from nodrop.servers.websocket.connection import Asked
from nodrop.servers.websocket.frames import Call, Credit, Flush, Frame, Hello

Target = Callable[[bytes], None]

NOW: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""

_INTAKE: Final = Intake(DEFAULT)
_CONNECTION: Final[Any] = SimpleNamespace(
    caller=Caller(team="team", agent="agent"), key=("team", "agent"), process="process"
)
"""A connection, as far as reading its frames needs one."""


def offer(data: bytes) -> None:
    """An offer as HTTP brings it, read as far as the machine."""
    request = decode_strict(data, requests.Offer, DEFAULT)
    _INTAKE.terms(request, now=NOW)
    _INTAKE.legs(request)
    content = _INTAKE.content(request)
    assert msgspec.json.decode(content) is not None, "what is kept can be read"


def result(data: bytes) -> None:
    """A result: any JSON, which must come out of the store as it went in."""
    request = decode_strict(data, requests.Complete, DEFAULT)
    kept = canonical.dumps(request.result)
    assert canonical.dumps(canonical.loads(kept)) == kept, "what is kept stays what it is"


def commands(data: bytes) -> None:
    """Every other command that is about a handoff; the first byte says which."""
    kind = _COMMANDS[data[0] % len(_COMMANDS)] if data else requests.Ack
    _INTAKE.command(decode_strict(data[1:], kind, DEFAULT), now=NOW)


def query(data: bytes) -> None:
    """A query string; the first byte says of what."""
    decode_query(data[1:], _QUERIES[data[0] % len(_QUERIES)] if data else requests.GetLog)


def path(data: bytes) -> None:
    """A path."""
    _, below = split_team(b"/" + data)
    find(below if below is not None else data.decode("latin-1"))


def message(data: bytes) -> None:
    """A WebSocket message: a hello, or frames of the calls after it.

    What is read at once must be what a closer look finds.
    """
    at_once = decode_plainly(data, frames.READER, DEFAULT)
    if at_once is None:
        for raw in frames.split(data):
            _frame(raw)
        return
    try:
        closely = [_frame(raw) for raw in frames.split(data)]
    except REFUSALS as error:
        raise AssertionError("read at once, and refused on a closer look") from error
    plainly = map(_said, at_once)
    assert list(plainly) == list(map(_said, closely)), "both say the same"


def _frame(raw: bytes) -> Call | Credit | Flush | Hello:
    frame = peek(raw, Frame, DEFAULT)
    frames.read_id(raw, DEFAULT)
    kinds = {"hello": Hello, "credit": Credit, "flush": Flush}
    if (kind := kinds.get(frame.op)) is not None:
        return decode_strict(raw, kind, DEFAULT)
    return frames.read_call(frame, raw, DEFAULT)


def _said(frame: Any) -> object:
    """Return what a frame asks for, as its connection takes it."""
    if isinstance(frame, Credit | Flush | Hello):
        return frame
    asked = Asked(_CONNECTION, frame)
    fields = OPERATIONS[asked.operation].request.__struct_fields__
    request = [getattr(asked.request, field) for field in fields]
    follows = asked.operation == frames.FOLLOWED and frame.follow
    return (
        frame.id,
        asked.operation,
        asked.handoff_id,
        asked.name,
        follows,
        frame.quiet,
        asked.quiet,
        request,
    )


def block(data: bytes) -> None:
    """A HANDOFF block as people write it; what is read can be written, and read again."""
    fields = text.parse(data.decode())
    assert isinstance(fields, dict), "a block is fields"


def times(data: bytes) -> None:
    """A duration, a point in time, or what may be either."""
    spelled = data.decode()
    readers: tuple[Callable[[str], int], ...] = (parse_duration, parse_time, _parse_due)
    for read in readers:
        try:
            milliseconds = read(spelled)
        except ValueError:
            continue
        assert isinstance(milliseconds, int), "times are whole milliseconds"
        if 0 <= milliseconds <= DEFAULT.duration_ms_max:
            assert parse_duration(format_duration(milliseconds)) == milliseconds
            assert parse_time(format_time(milliseconds)) == milliseconds


def _parse_due(spelled: str) -> int:
    return parse_due(spelled, now=NOW)


_COMMANDS: Final[tuple[type[requests.Command], ...]] = (
    requests.Ack,
    requests.Update,
    requests.Reject,
    requests.Counter,
    requests.Block,
    requests.Fail,
    requests.Release,
    requests.Step,
    requests.Checkpoint,
    requests.Cancel,
    requests.Discard,
    requests.Note,
)

_QUERIES: Final = (requests.GetLog, requests.ListHandoffs, requests.GetHandoff)

REFUSALS: Final[tuple[type[Exception], ...]] = (NodropError, UnicodeDecodeError)
"""What a target may raise."""

TARGETS: Final[dict[str, Target]] = {
    target.__name__: target
    for target in (offer, result, commands, query, path, message, block, times)
}


SEEDS: Final[dict[str, tuple[bytes, ...]]] = {
    "offer": (
        b'{"to":"b","title":"t","payload":{"a":[1,-2.5e3,null,true,"\\u00e9"]},"deadline":"4h"}',
        b'{"capability":"c","priority":"high","backoff":{"first":"2s","factor":2,"max":300}}',
        b'{"to":"b","escalation":[{"when":"silent","after":"PT1H","notify":"me"}],"then":[{"to":"c"}]}',
        b'{"to":"b","watchers":["c"],"idempotency_key":"k","attempts_max":3,"metadata":{"k":1}}',
    ),
    "result": (b'{"result":{"a":[1,2.5,"x",null]},"attempt":1}', b'{"result":1e300}'),
    "commands": tuple(
        bytes([number]) + body
        for number, body in enumerate(
            (
                b'{"attempt":1,"status":"s","position":2,"eta":"2h","next_update":"30m"}',
                b'{"attempt":1,"eta":"2026-01-01T12:00:00Z"}',
                b'{"reason":"no"}',
                b'{"deadline":"2h","priority":"low","update_every":60}',
                b'{"question":"Which?","to":"a","name":"n","park":true,"checkpoint":{}}',
                b'{"code":"c","retryable":true}',
                b'{"checkpoint":[1]}',
                b'{"name":"s","value":1}',
                b'{"checkpoint":null}',
                b"{}",
                b'{"reason":null}',
                b'{"text":"t"}',
            )
        )
    ),
    "query": (
        b"\x00after=1&wait=4h&limit=10&type=x",
        b"\x01state=offered&from=a%20b&before=%C3%A9",
        b"\x02wait=1.5&until=acknowledged&of=chain",
    ),
    "path": (b"v1/handoffs/a%2Fb/steps/c", b"teams/t/v1/agents/x", b"inbox/take"),
    "message": (
        b'{"id":1,"op":"ack","handoff_id":"h","attempt":1}',
        b'[{"id":"a","op":"handoffs/h/ack"},{"op":"credit","n":1}]',
        b'[{"id":1,"op":"offer","to":"b","payload":{"a":[1]},"follow":true},{"op":"flush"}]',
        b'{"id":0,"op":"hello","token":"t","resume":null,"heartbeat_seconds":10,"batch":true}',
    ),
    "block": (
        'HANDOFF: a → b\nTRIGGER: t\nPRIORITY: high\nPAYLOAD: {"a": [...]}\n'
        "DEADLINE: 4 hours\nESCALATION: If no response in 1 hour, notify me\n"
        "THEN: c → d/review\n".encode(),
    ),
    "times": (b"4h", b"1h 30m", b"PT4H30M", b"90.5", b"2026-01-01T12:00:00+02:00", b"3 weeks"),
}
"""What each target takes well: where a fuzzer begins."""

WORDS: Final = (
    *(b'"%b"' % field.encode() for field in requests.Offer.__struct_encode_fields__),
    *(b'"%b"' % word for word in (b"attempt", b"op", b"handoff_id", b"name", b"result", b"id")),
    *(b"null", b"true", b"NaN", b"-0", b"1e999", b"\\ud800", b"\xed\xa0\x80", b"[[[[", b"{}"),
    *(b"HANDOFF:", b"PAYLOAD:", b"ESCALATION:", b"THEN:", b"hours", b"PT", b"%2F", b"&", b"="),
)
"""What a fuzzer that knows no grammar may put together."""


def feed(target: Target, data: bytes) -> None:
    """Give `data` to a target; a refusal is as good as an answer."""
    with contextlib.suppress(*REFUSALS):
        target(data)
