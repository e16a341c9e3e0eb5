import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import pytest

from kit.asgi import WAIT_SECONDS_MAX, Visitor
from nodrop.app import SystemIds
from nodrop.model.errors import QueueFullError
from nodrop.model.limits import DEFAULT
from nodrop.relay.relay import Asking, Relay
from nodrop.servers.gate import Gate
from nodrop.servers.http.answers import RefusedError
from nodrop.servers.http.bodies import Bodies
from nodrop.servers.http.door import HTTPDoor
from nodrop.servers.websocket.door import WebSocketDoor
from nodrop.testing.clock import FakeClock

OFFER = {"to": "code_agent", "title": "Login button", "idempotency_key": "msg_123"}


@pytest.fixture(params=[True, False], ids=["whole", "by ASGI"])
def stranger(request: pytest.FixtureRequest, relay: Relay, http: HTTPDoor) -> Visitor:
    """A client without a token, before the gate; every story is the same both ways."""
    gate = Gate(http=http, websocket=WebSocketDoor(relay, new_id=SystemIds().new))
    return Visitor(gate, whole=request.param)


async def offered(requester: Visitor, **fields: Any) -> Any:
    response = await requester.request("POST", "/v1/handoffs", json=OFFER | fields)
    assert response.status == 201
    return response.json()["handoff"]


# --- answers -------------------------------------------------------------------------------------


async def test_an_offer_is_created_and_its_repeat_is_told_as_one(requester: Visitor) -> None:
    first = await requester.request("POST", "/v1/handoffs", json=OFFER)
    again = await requester.request("POST", "/v1/handoffs", json=OFFER)
    assert (first.status, again.status) == (201, 200)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json()["handoff"]["id"] == again.json()["handoff"]["id"]


async def test_the_idempotency_key_header_is_the_command_id(
    requester: Visitor, worker: Visitor
) -> None:
    await offered(requester)
    taken = [
        await worker.request("POST", "/v1/inbox/take", headers={"idempotency-key": key})
        for key in ("one", '"one"', "two")
    ]
    found = [[d["attempt"] for d in t.json()["deliveries"]] for t in taken]
    assert found == [[1], [1], []]
    assert taken[1].headers["idempotency-replayed"] == "true"


async def test_another_body_under_the_idempotency_key_header_is_refused(requester: Visitor) -> None:
    async def post(body: bytes) -> Any:
        headers = {"idempotency-key": '"zz9"', "content-type": "application/json"}
        return await requester.request("POST", "/v1/handoffs", body, headers=headers)

    first = await post(b'{"to":"code_agent","title":"one","payload":{"a":1,"b":2}}')
    spelled = await post(b'{ "title":"one", "payload":{"b":2, "a":1}, "to":"code_agent" }')
    another = await post(b'{"to":"code_agent","title":"two","payload":{"a":1,"b":2}}')
    assert (first.status, spelled.status, another.status) == (201, 200, 409)
    assert spelled.json()["handoff"]["id"] == first.json()["handoff"]["id"]
    assert another.json()["code"] == "idempotency_conflict"


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("header", "joined"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", True),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", False),
        ("nonsense", False),
    ],
)
async def test_the_traceparent_header_says_what_an_offer_is_part_of(
    requester: Visitor, header: str, *, joined: bool
) -> None:
    traced = requester.with_headers(traceparent=header)
    [context] = {(await offered(traced))["traceparent"]}
    assert (context.split("-")[1] == TRACE) is joined
    members = {"offers": {"a": {"to": "code_agent"}}}
    group = (await traced.request("POST", "/v1/groups", json=members)).json()["group"]
    assert (group["handoff"]["traceparent"].split("-")[1] == TRACE) is joined


async def test_a_header_and_a_body_that_name_different_command_ids_are_refused(
    worker: Visitor,
) -> None:
    response = await worker.request(
        "POST", "/v1/inbox/take", json={"command_id": "a"}, headers={"idempotency-key": "b"}
    )
    assert response.status == 422
    assert [e["path"] for e in response.json()["errors"]] == ["command_id"]


async def test_a_reference_with_a_quoted_slash_names_one_handoff(
    requester: Visitor, worker: Visitor
) -> None:
    handoff = await offered(requester)
    response = await worker.request("POST", "/v1/handoffs/inbox_monitor%2Fmsg_123/ack")
    assert response.status == 200
    assert response.json()["handoff"]["id"] == handoff["id"]
    assert response.json()["handoff"]["state"] == "accepted"


async def test_a_slash_that_is_not_quoted_separates(worker: Visitor) -> None:
    response = await worker.request("POST", "/v1/handoffs/inbox_monitor/msg_123/ack")
    assert (response.status, response.json()["code"]) == (404, "not_found")


async def test_a_step_is_recorded_under_the_name_in_its_path(
    requester: Visitor, worker: Visitor
) -> None:
    handoff = await offered(requester)
    await worker.request("POST", f"/v1/handoffs/{handoff['id']}/ack")
    path = f"/v1/handoffs/{handoff['id']}/steps/open%20ticket"
    put = await worker.request("PUT", path, json={"attempt": 1, "value": {"n": 1}})
    assert put.json() == {"name": "open ticket", "recorded": True, "value": {"n": 1}}
    assert (await worker.request("GET", path)).json() == put.json()
    other = await worker.request("PUT", path, json={"attempt": 1, "name": "another"})
    assert [e["path"] for e in other.json()["errors"]] == ["name"]


async def test_a_manifest_is_kept_byte_for_byte(worker: Visitor) -> None:
    manifest = b'{ "agent_id": "code_agent",\n  "capabilities": [{"name": "bug_triage"}] }'
    put = await worker.request("PUT", "/v1/agents/code_agent", manifest)
    assert put.status == 200
    got = await worker.request("GET", "/v1/agents/code_agent")
    assert manifest in got.body


async def test_a_manifest_that_is_wrong_is_refused_with_the_path_in_it(worker: Visitor) -> None:
    manifest = {"agent_id": "code_agent", "capabilities": [{"names": "x"}]}
    response = await worker.request("PUT", "/v1/agents/code_agent", json=manifest)
    problem = response.json()
    assert problem["errors"] == [
        {"path": "capabilities[0].names", "message": "unknown field; did you mean 'name'?"}
    ]


async def test_an_agent_is_removed_without_a_body(worker: Visitor) -> None:
    await worker.request("PUT", "/v1/agents/code_agent", json={"agent_id": "code_agent"})
    assert (await worker.request("DELETE", "/v1/agents/code_agent")).status == 200
    assert (await worker.request("GET", "/v1/agents/code_agent")).status == 404


async def test_query_parameters_are_read_as_what_they_are(requester: Visitor) -> None:
    await offered(requester)
    page = await requester.request("GET", "/v1/handoffs?limit=1&state=offered")
    assert len(page.json()["handoffs"]) == 1
    wrong = await requester.request("GET", "/v1/handoffs?limit=many")
    assert (wrong.status, [e["path"] for e in wrong.json()["errors"]]) == (422, ["limit"])
    unknown = await requester.request("GET", "/v1/handoffs?stat=offered")
    assert unknown.json()["errors"][0]["message"] == "unknown field; did you mean 'state'?"


# --- who is asking -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Basic token-me", "Bearer nobody", "token-me"]
)
async def test_without_a_valid_token_nothing_is_answered(
    stranger: Visitor, authorization: str
) -> None:
    response = await stranger.request(
        "GET", "/v1/handoffs", headers={"authorization": authorization}
    )
    assert (response.status, response.json()["code"]) == (401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"


async def test_a_token_in_the_query_string_is_no_token(stranger: Visitor) -> None:
    response = await stranger.request("GET", "/v1/handoffs?token=token-me")
    assert response.status == 401


async def test_a_team_is_named_in_the_path_or_is_the_callers_own(requester: Visitor) -> None:
    own = await requester.request("GET", "/teams/default/v1/handoffs")
    other = await requester.request("GET", "/teams/other/v1/handoffs")
    assert (own.status, other.status) == (200, 404)
    assert other.json()["code"] == "not_found"


# --- paths and methods ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/v1/", "/v1/nothing", "/v1/handoffs/", "/v1/handoffs//ack", "/v1/handoffs/x/nothing", "/x"],
)
async def test_an_unknown_path_is_a_problem_document(requester: Visitor, path: str) -> None:
    response = await requester.request("GET", path)
    assert (response.status, response.json()["code"]) == (404, "not_found")
    assert response.json()["next"] == "/openapi.json lists every path."
    assert response.headers["content-type"] == "application/problem+json"


async def test_a_wrong_method_is_told_which_are_right(requester: Visitor) -> None:
    response = await requester.request("DELETE", "/v1/handoffs")
    assert (response.status, response.json()["status"]) == (405, 405)
    assert response.json()["code"] == "invalid_request"
    assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_options_are_told_and_no_other_origin_is_let_in(stranger: Visitor) -> None:
    response = await stranger.request("OPTIONS", "/v1/handoffs")
    assert response.status == 204
    assert response.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert not [name for name in response.headers if name.startswith("access-control")]


async def test_head_is_answered_as_get(requester: Visitor) -> None:
    assert (await requester.request("HEAD", "/v1/handoffs")).status == 200


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/healthz", "application/json"),
        ("/readyz", "application/json"),
        ("/openapi.json", "application/json"),
    ],
)
async def test_the_pages_need_no_token(stranger: Visitor, path: str, kind: str) -> None:
    response = await stranger.request("GET", path)
    assert (response.status, response.headers["content-type"]) == (200, kind)
    assert (await stranger.request("POST", path)).json()["status"] == 405


# --- bodies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [None, "application/json", "application/json; charset=utf-8", "application/merge+json"],
)
async def test_a_body_is_json_whatever_flavour_it_claims(
    requester: Visitor, kind: str | None
) -> None:
    headers = {} if kind is None else {"content-type": kind}
    response = await requester.request("POST", "/v1/handoffs", json=OFFER, headers=headers)
    assert response.status == 201


async def test_a_body_that_curl_calls_a_form_is_read_as_json(requester: Visitor) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (await requester.request("POST", "/v1/handoffs", json=OFFER, headers=form)).status == 201
    response = await requester.request("POST", "/v1/handoffs", b"to=code_agent", headers=form)
    assert response.status == 422


@pytest.mark.parametrize(
    "headers", [{"content-type": "text/xml"}, {"content-encoding": "gzip"}], ids=str
)
async def test_a_body_that_says_it_is_not_json_is_refused(
    requester: Visitor, headers: dict[str, str]
) -> None:
    response = await requester.request("POST", "/v1/handoffs", json=OFFER, headers=headers)
    assert (response.status, response.json()["code"]) == (415, "invalid_request")


async def test_a_body_that_declares_too_much_is_refused_before_it_is_read(
    requester: Visitor,
) -> None:
    length = str(DEFAULT.frame_bytes_max + 1)
    async with requester.exchange(
        "POST", "/v1/handoffs", b"{}", headers={"content-length": length}
    ) as exchange:
        response = await exchange.response()
        assert (response.status, response.json()["code"]) == (413, "too_large")
        assert response.headers["connection"] == "close"
        assert exchange.pieces_read == 0


async def test_a_body_without_end_is_cut_off(requester: Visitor) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * 65_536

    pieces: Iterable[bytes] = endless()
    async with requester.exchange("POST", "/v1/handoffs", pieces) as exchange:
        response = await exchange.response()
        assert (response.status, response.json()["code"]) == (413, "too_large")
        assert exchange.pieces_read == DEFAULT.frame_bytes_max // 65_536 + 1


async def test_a_body_in_pieces_is_put_together(requester: Visitor) -> None:
    pieces = [b'{"to": "code', b'_agent"', b"}"]
    assert (await requester.request("POST", "/v1/handoffs", pieces)).status == 201


async def test_bodies_that_do_not_arrive_are_not_waited_for() -> None:
    bodies = Bodies(bytes_max=1, seconds_max=0.01)

    async def read() -> RefusedError:
        with pytest.raises(RefusedError) as refused:
            await bodies.read(never, {})
        return refused.value

    for _ in range(2):
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            refusals = await asyncio.gather(*(asyncio.create_task(read()) for _ in range(3)))
        assert [(r.status, r.error.code) for r in refusals] == [(408, "invalid_request")] * 3


async def test_a_reader_that_is_cancelled_is_not_mistaken_for_a_slow_one() -> None:
    reading = asyncio.create_task(Bodies(bytes_max=1).read(never, {}))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def never() -> Any:
    await asyncio.Event().wait()


# --- waiting -------------------------------------------------------------------------------------


Waits = Callable[[int], Awaitable[None]]


async def test_a_take_that_waits_is_answered_when_work_comes(
    requester: Visitor, worker: Visitor, somebody_waits: Waits
) -> None:
    async with worker.exchange("POST", "/v1/inbox/take", json={"wait": "29s"}) as exchange:
        await somebody_waits(29_000)
        handoff = await offered(requester)
        deliveries = (await exchange.response()).json()["deliveries"]
        assert [d["handoff"]["id"] for d in deliveries] == [handoff["id"]]


async def test_a_client_that_goes_away_takes_nothing(
    requester: Visitor, worker: Visitor, somebody_waits: Waits
) -> None:
    async with worker.exchange("POST", "/v1/inbox/take", json={"wait": "29s"}) as exchange:
        await somebody_waits(29_000)
        exchange.leave()
        await exchange.over()
    handoff = await offered(requester)
    taken = await worker.request("POST", "/v1/inbox/take")
    assert [d["attempt"] for d in taken.json()["deliveries"]] == [1]
    assert taken.json()["deliveries"][0]["handoff"]["id"] == handoff["id"]


async def test_a_wait_that_ran_out_is_no_failure(
    requester: Visitor, clock: FakeClock, somebody_waits: Waits
) -> None:
    handoff = await offered(requester)
    path = f"/v1/handoffs/{handoff['id']}?wait=29s&until=acknowledged"
    async with requester.exchange("GET", path) as exchange:
        await somebody_waits(29_000)
        clock.advance(29_000)
        response = await exchange.response()
    assert response.status == 200
    assert response.json()["wait_elapsed"] is True


async def test_those_who_wait_are_told_when_the_relay_stops(
    worker: Visitor, stranger: Visitor, http: HTTPDoor, somebody_waits: Waits
) -> None:
    async with worker.exchange("POST", "/v1/inbox/take", json={"wait": "29s"}) as exchange:
        await somebody_waits(29_000)
        http.close()
        response = await exchange.response()
    assert (response.status, response.json()["code"]) == (503, "unavailable")
    assert response.headers["retry-after"] == "1"
    late = await worker.request("POST", "/v1/inbox/take", json={"wait": "29s"})
    assert late.status == 503
    assert (await stranger.request("GET", "/readyz")).status == 503


# --- faults --------------------------------------------------------------------------------------


async def test_a_fault_of_ours_is_logged_and_tells_nothing_of_the_inside(
    requester: Visitor,
    relay: Relay,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret inside")

    monkeypatch.setattr(relay, "call", broken)
    response = await requester.request("GET", "/v1/handoffs")
    assert (response.status, response.json()["code"]) == (500, "relay_fault")
    assert b"secret inside" not in response.body
    assert "secret inside" in caplog.text


async def test_a_refusal_that_may_be_repeated_says_after_how_long(
    requester: Visitor, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any, **__: Any) -> None:
        raise QueueFullError

    def refuse(asking: Asking) -> None:
        asking.refuse(QueueFullError())

    monkeypatch.setattr(relay, "call", full)
    monkeypatch.setattr(relay, "ask", refuse)
    response = await requester.request("POST", "/v1/handoffs", json=OFFER)
    assert (response.status, response.headers["retry-after"]) == (503, "1")
