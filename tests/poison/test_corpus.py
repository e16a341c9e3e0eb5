"""Every poison gets the answer that is written beside it, and the relay goes on."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from nodrop.model.errors import InvalidRequestError
from nodrop.protocol import requests
from nodrop.relay.relay import Reply

if TYPE_CHECKING:
    from conftest import Answer, Poison, Victim

NO_PROBLEM = "an upgrade without a key"
"""Refused by the WebSocket library, before any door."""


def test_the_corpus_is_as_large_as_promised(corpus: "list[Poison]") -> None:
    names = [poison.name for poison in corpus]
    assert len(names) == len(set(names))
    assert len(names) >= 40


async def test_over_http(victim: "Victim", poison: "Poison") -> None:
    await check(victim, poison)


async def check(victim: "Victim", poison: "Poison") -> None:
    """Fail unless the relay takes a poison as the corpus says, and goes on."""
    before = await victim.head()
    answer = await victim.ask(poison.request)
    assert answer.status < 500
    assert answer.status == poison.status, answer.body
    if not poison.accepted:
        if poison.name != NO_PROBLEM:
            check_problem(answer, poison)
        assert await victim.head() == before, "something was stored"
    elif answer.status == 201:
        assert await victim.head() > before
    await victim.check_serves()


def check_problem(answer: "Answer", poison: "Poison") -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["code"]) == (poison.status, poison.code)
    assert problem["next"].endswith(".")
    assert len(answer.body) < 4_096, "it is not all told back"


async def test_over_a_channel(victim: "Victim", framed: "Poison") -> None:
    before = await victim.head()
    frame = b'{"id":1,"op":"offer",' + framed.body[1:]
    answer = await victim.frame(frame)
    if framed.accepted:
        assert answer["ok"]["handoff"]["state"] == "offered"
        assert await victim.head() > before
    else:
        assert answer["error"]["code"] == framed.code
        assert answer["error"]["next"]
        assert await victim.head() == before, "something was stored"
    await victim.check_serves()


NO_FRAMES = [
    b"hello",
    b"",
    b"null",
    b'"op"',
    b"[1]",
    b"[[]]",
    b'{"op":5}',
    b'{"id":[],"op":"offer"}',
    b'{"id":1.5,"op":"offer"}',
    b'{"id":1}',
    b'{"id":1,"op":"no such thing"}',
    b'{"id":1,"op":"../../v1/handoffs"}',
    b'{"id":1,"op":"ack"}',
    b'{"id":1,"op":"ack","handoff_id":5}',
    b'{"id":1,"op":"credit","n":"many"}',
    b'{"id":1,"op":"hello"}',
    b'{"id":1,"op":"offer","op":"ack"}',
    b"\xef\xbb\xbf{}",
    b"\xff\xfe",
    b'{"id":1,"op":"\xff"}',
    b"[" * 100_000,
    b'{"id":' + b"9" * 10_000 + b',"op":"offer"}',
    b'{"id":1,"op":"' + b"x" * 100_000 + b'"}',
]


@pytest.mark.parametrize("data", NO_FRAMES, ids=lambda data: repr(data[:40]))
async def test_a_frame_that_is_none_is_refused_and_the_channel_goes_on(
    victim: "Victim", data: bytes
) -> None:
    before = await victim.head()
    async with victim.channel() as channel:
        await channel.send_bytes(data)
        error = (await channel.receive_json())["error"]
        assert error["code"] in {"invalid_request", "not_found", "too_large"}
        assert error["next"]
        assert await victim.head() == before
        await channel.send_json({"id": "next", "op": "offer", "to": "b"})
        assert (await channel.receive_json())["id"] == "next"


# --- controls ------------------------------------------------------------------------------------


def refused(corpus: "list[Poison]") -> "Poison":
    return next(poison for poison in corpus if poison.name == "a key twice")


def accepted(corpus: "list[Poison]") -> "Poison":
    return next(poison for poison in corpus if poison.name == "minus zero")


async def test_a_relay_that_fails_is_found_out(
    victim: "Victim", corpus: "list[Poison]", monkeypatch: pytest.MonkeyPatch
) -> None:
    poison = accepted(corpus)
    await check(victim, poison)

    async def raise_(*_: Any, **__: Any) -> Reply:
        raise RuntimeError("a defect")

    def fail(*_: Any) -> None:
        raise RuntimeError("a defect")

    call, ask, head = victim.relay.call, victim.relay.ask, await victim.head()
    monkeypatch.setattr(victim, "head", lambda: at(head))
    monkeypatch.setattr(victim.relay, "call", raise_)
    monkeypatch.setattr(victim.relay, "ask", fail)
    with pytest.raises(AssertionError, match="500"):
        await check(victim, poison)
    monkeypatch.setattr(victim.relay, "call", call)
    monkeypatch.setattr(victim.relay, "ask", ask)


async def at(head: int) -> int:
    return head


async def test_a_relay_that_stores_before_it_refuses_is_found_out(
    victim: "Victim", corpus: "list[Poison]", monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticate = victim.relay.authenticate

    async def store_first(secret: str, **where: Any) -> Any:
        caller = await authenticate(secret, **where)
        await victim.relay.call(caller, "note_team", requests.Note(text="somebody came"))
        return caller

    monkeypatch.setattr(victim.relay, "authenticate", store_first)
    with pytest.raises(AssertionError, match="something was stored"):
        await check(victim, refused(corpus))


async def test_a_relay_that_accepts_what_it_must_refuse_is_found_out(
    victim: "Victim", corpus: "list[Poison]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def lax(data: bytes, kind: type[Any], _limits: Any) -> Any:
        try:
            return kind(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise InvalidRequestError(str(error)) from None

    monkeypatch.setattr("nodrop.protocol.routes.decode_strict", lax)
    with pytest.raises(AssertionError, match="201"):
        await check(victim, refused(corpus))
