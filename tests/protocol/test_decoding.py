import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.model.errors import InvalidRequestError, NodropError, TooLargeError
from nodrop.model.limits import DEFAULT
from nodrop.protocol.decoding import (
    INTEGER_MAX,
    INTEGER_MIN,
    decode_plainly,
    decode_query,
    decode_strict,
    encode_strict,
    peek,
)
from nodrop.protocol.requests import Complete, GetInbox, Offer

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)

ANYTHING = msgspec.json.Decoder()


def problem(data: bytes, kind: type[Any] = Offer) -> tuple[str, str]:
    with pytest.raises(InvalidRequestError) as refused:
        decode_strict(data, kind, DEFAULT)
    (found,) = refused.value.errors
    return found.path, found.message


@given(VALUES)
def test_every_sound_value_is_read_as_python_reads_it(value: Any) -> None:
    for data in (
        msgspec.json.encode({"result": value}),
        json.dumps({"result": value}).encode(),
        json.dumps({"result": value}, ensure_ascii=False, indent=1).encode(),
    ):
        assert decode_strict(data, Complete, DEFAULT).result == json.loads(data)["result"]


@given(VALUES, st.text(), VALUES, VALUES)
def test_a_key_that_is_there_twice_is_found_wherever_it_is(
    outside: Any, key: str, first: Any, second: Any
) -> None:
    name = json.dumps(key)
    twice = f'{{{name}: {json.dumps(first)}, "x{key and ""}": 1, {name}: {json.dumps(second)}}}'
    text = f'{{"result": [{json.dumps(outside)}, {twice}]}}'
    path, message = problem(text.encode(), Complete)
    assert path.startswith("result[1].")
    assert message == "the key is there more than once"


@given(st.integers(min_value=INTEGER_MAX + 1) | st.integers(max_value=INTEGER_MIN - 1))
def test_an_integer_over_64_bits_is_found(number: int) -> None:
    path, _ = problem(b'{"result": {"a": [0, %d]}}' % number, Complete)
    assert path == "result.a[1]"


@pytest.mark.parametrize("number", [INTEGER_MIN, INTEGER_MAX])
def test_an_integer_of_64_bits_is_fine(number: int) -> None:
    assert decode_strict(b'{"result": %d}' % number, Complete, DEFAULT).result == number


def test_digits_in_a_text_are_no_integer() -> None:
    data = b'{"result": "99999999999999999999999999"}'
    assert decode_strict(data, Complete, DEFAULT).result == "9" * 26


@pytest.mark.parametrize(
    "data",
    [
        b'{"key":"11111111111111111111"}',
        b'{"11111111111111111111":1}',
        rb'["\"11111111111111111111"]',
        rb'["\\",123456789012345678,"11111111111111111111"]',
    ],
)
def test_digits_in_texts_alone_need_no_closer_look(data: bytes) -> None:
    assert decode_plainly(data, ANYTHING, DEFAULT) is not None


def test_ids_that_look_like_large_exponents_need_no_closer_look() -> None:
    ids = [f"01a1ee13-2d96-7293-85bd-2e355e3{n:05}" for n in range(200)]
    assert decode_plainly(msgspec.json.encode(ids), ANYTHING, DEFAULT) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"[18446744073709551615]",
        b'{"key":"11111111111111111111","n":9223372036854775808}',
        rb'["\\",9223372036854775808,"\\"]',
        b"[-9223372036854775809]",
    ],
)
def test_an_integer_over_64_bits_needs_one(data: bytes) -> None:
    assert decode_plainly(data, ANYTHING, DEFAULT) is None


@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ('{"a":', "}")])
def test_a_field_may_nest_as_deep_as_the_bound_and_no_deeper(open_: str, close: str) -> None:
    def nested(levels: int) -> bytes:
        return f'{{"title":"[","payload":{open_ * levels}1{close * levels}}}'.encode()

    decode_strict(nested(DEFAULT.json_levels_max), Offer, DEFAULT)
    for levels in (DEFAULT.json_levels_max + 1, 100_000):
        with pytest.raises(TooLargeError) as refused:
            decode_strict(nested(levels), Offer, DEFAULT)
        assert [p.path for p in refused.value.errors] == ["payload"]


def test_a_wide_value_is_not_a_deep_one() -> None:
    wide = msgspec.json.encode({"payload": [[{"a": [1]}]] * 1_000})
    assert len(decode_strict(wide, Offer, DEFAULT).payload) == 1_000


def test_brackets_in_a_text_do_not_nest() -> None:
    text = '["\\' * 1_000
    data = msgspec.json.encode({"title": text})
    assert decode_strict(data, Offer, DEFAULT).title == text


@pytest.mark.parametrize(
    "data", [b'\\"' * 50_000, b'"\\' * 50_000, b"[" * 50_000 + b'"', b"]" * 99]
)
def test_rubbish_is_refused_in_linear_time(data: bytes) -> None:
    with pytest.raises(NodropError):  # in quadratic time this takes minutes
        decode_strict(data, Offer, DEFAULT)


# The forms of msgspec's messages that paths are read from: a new version may not change them.
@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        (b'{"titles": 1}', "titles", "unknown field; did you mean 'title'?"),
        (b'{"zzz": 1}', "zzz", "unknown field"),
        (b'{"then": [{}, {"titl": 1}]}', "then[1].titl", "unknown field; did you mean 'title'?"),
        (b'{"backoff": {"firsts": 1}}', "backoff.firsts", "unknown field; did you mean 'first'?"),
        (b'{"escalation": [{}]}', "escalation[0].when", "required, and missing"),
        (b'{"watchers": ["a", 1]}', "watchers[1]", "Expected str, got int"),
        (b'{"title": 1}', "title", "Expected str | null, got int"),
        (b'{"parameters": []}', "parameters", "Expected object, got array"),
        (b"[]", "", "Expected object, got array"),
        (b'{"payload": 1e999}', "payload", "Number out of range"),
        (b'{"payload": {"a": 1e999}}', "payload.a", "the number is out of range"),
        (b'{"payload": [NaN]}', "", "JSON is malformed: invalid character (byte 13)"),
        (b'{"title": "\xff"}', "", "the text is not valid UTF-8"),
        (b"", "", "Input data was truncated"),
    ],
)
def test_a_problem_names_its_path(data: bytes, path: str, message: str) -> None:
    assert problem(data) == (path, message)


def test_a_problem_does_not_repeat_all_that_was_sent() -> None:
    path, message = problem(b'{"%b": 1}' % (b"x" * 100_000))
    assert len(path) + len(message) < 300


def test_a_field_that_is_kept_raw_is_looked_into_all_the_same() -> None:
    class Kept(msgspec.Struct):
        raw: msgspec.Raw

    assert bytes(decode_strict(b'{"raw": {"a": 1}}', Kept, DEFAULT).raw) == b'{"a": 1}'
    assert problem(b'{"raw": {"a": 1, "a": 2}}', Kept)[0] == "raw.a"
    assert problem(b'{"raw": {"a": 1e999}}', Kept)[0] == "raw.a"


@pytest.mark.parametrize(
    ("query", "path"),
    [
        (b"limit=x", "limit"),
        (b"limits=1", "limits"),
        (b"limit=1&limit=2", "limit"),
        (b"wait=%ff", ""),
        (b"wait=\xff", ""),
        (b"&".join(b"a%d=1" % i for i in range(100)), ""),
    ],
)
def test_a_query_that_is_wrong_is_refused_with_the_path(query: bytes, path: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        decode_query(query, GetInbox)
    assert [p.path for p in refused.value.errors] == [path]


def test_a_query_is_read_as_what_it_says() -> None:
    read = decode_query(b"after=17&wait=1%20hour&all=true", GetInbox)
    assert read == GetInbox(after=17, wait="1 hour", all=True)


def test_peeking_passes_over_what_it_does_not_want() -> None:
    class Wanted(msgspec.Struct):
        op: str

    assert peek(b'{"x": [1, 2], "op": "ack"}', Wanted, DEFAULT).op == "ack"
    with pytest.raises(TooLargeError):
        peek(b'{"x": ' + b"[" * 9_999 + b"]" * 9_999 + b', "op": "ack"}', Wanted, DEFAULT)


def test_fields_of_this_process_are_written_as_json() -> None:
    assert encode_strict({"a": (1, None), 2: {"b"}}) == b'{"a":[1,null],"2":["b"]}'  # pyright: ignore[reportArgumentType]  # a caller may be careless
