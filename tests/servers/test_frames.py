"""Frames read at once: the same calls, and nothing that a closer look would refuse."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from nodrop.model.errors import NodropError
from nodrop.model.limits import DEFAULT
from nodrop.protocol.decoding import decode_plainly, peek
from nodrop.protocol.requests import Offer
from nodrop.relay.handoffs.repeats import digest_of
from nodrop.relay.relay import Caller
from nodrop.servers.websocket import frames
from nodrop.servers.websocket.connection import Asked
from nodrop.servers.websocket.frames import Call, Credit, Flush, Frame

ID = "019b76da-a800-7000-8000-000000000001"
SOUND: list[dict[str, Any]] = [
    {"id": 1, "op": "offer", "to": "b", "payload": {"n": 1}, "idempotency_key": "k"},
    {"id": "a", "op": "complete", "handoff_id": ID, "attempt": 1, "result": [1, None]},
    {"op": "get_handoff", "handoff_id": ID, "wait": 20.0, "until": "finished"},
    {"id": 4, "op": "log", "handoff_id": ID},
]


CONNECTION: Any = SimpleNamespace(
    caller=Caller(team="t", agent="a"), key=("t", "a"), process="process"
)


def told(data: bytes) -> list[Asked | Credit | Flush]:
    said = decode_plainly(data, frames.READER, DEFAULT)
    assert said is not None
    own = Credit | Flush
    return [each if isinstance(each, own) else Asked(CONNECTION, each) for each in said]


def looked_at_closely(data: bytes) -> Call:
    return frames.read_call(peek(data, Frame, DEFAULT), data, DEFAULT)


@pytest.mark.parametrize("frame", SOUND)
def test_a_frame_read_at_once_says_what_it_says_on_a_closer_look(frame: dict[str, Any]) -> None:
    data = msgspec.json.encode(frame)
    [call] = told(data)
    closely = looked_at_closely(data)
    assert isinstance(call, Asked)
    assert (call.frame.id, call.operation) == (closely.id, closely.operation)
    assert isinstance(call.request, type(closely.request))
    for field in closely.request.__struct_fields__:
        assert getattr(call.request, field) == getattr(closely.request, field)


def test_a_frame_about_a_handoff_names_it() -> None:
    calls = told(msgspec.json.encode(SOUND))
    references = [call.handoff_id for call in calls if isinstance(call, Asked)]
    assert references == ["", ID, ID, ""]  # a log may be asked for what is about one


def test_several_frames_are_read_in_their_order() -> None:
    calls = told(msgspec.json.encode([*SOUND, {"op": "credit", "n": 3}]))
    operations = [call.operation for call in calls if isinstance(call, Asked)]
    assert operations == ["offer", "complete", "get_handoff", "log"]
    assert calls[-1] == Credit(n=3)


def test_an_offer_is_the_same_however_it_was_read() -> None:
    data = msgspec.json.encode(SOUND[0])
    [call] = told(data)
    closely = looked_at_closely(data)
    assert isinstance(call, Asked)
    assert isinstance(call.request, Offer)
    assert isinstance(closely.request, Offer)
    assert digest_of(call.request, "a") == digest_of(closely.request, "a")


DOUBTFUL = {
    "no JSON": b'{"op": "offer"',
    "no object": b"7",
    "an unknown operation": b'{"op":"dance"}',
    "an unknown field": b'{"op":"offer","too":"b"}',
    "a key twice": b'{"op":"offer","to":"b","to":"c"}',
    "a key twice in a payload": b'{"op":"offer","to":"b","payload":{"a":1,"a":2}}',
    "an integer over 64 bits": b'{"op":"offer","to":"b","payload":99999999999999999999}',
    "nested deep": b'{"op":"offer","to":"b","payload":' + b"[" * 70 + b"]" * 70 + b"}",
    "no handoff": b'{"op":"complete","attempt":1}',
    "an empty handoff": b'{"op":"complete","attempt":1,"handoff_id":""}',
    "a path": b'{"op":"handoffs","to":"b"}',
    "a name": b'{"op":"step","handoff_id":"x","name":"a","attempt":1,"value":1}',
    "a signature": b'{"op":"offer","to":"b","signature":"x"}',
    "a hello": b'{"op":"hello"}',
    "no UTF-8": b'{"op":"offer","to":"\xff"}',
}


@pytest.mark.parametrize("data", DOUBTFUL.values(), ids=DOUBTFUL)
def test_what_is_doubtful_is_left_to_a_closer_look(data: bytes) -> None:
    assert decode_plainly(data, frames.READER, DEFAULT) is None
    sound = msgspec.json.encode(SOUND[0])
    try:
        assert decode_plainly(b"[%b,%b]" % (sound, data), frames.READER, DEFAULT) is None
    except NodropError as error:
        assert error.code == "invalid_request"  # noqa: PT017  # no array of JSON objects at all
