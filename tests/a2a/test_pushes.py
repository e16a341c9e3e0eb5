"""Push notifications: what the log says, told to a webhook until it has taken it, over crashes too."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
from a2a.types import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from nodrop.model.errors import CursorUnknownError, StoreUnavailableError
from nodrop.protocol.requests import CreateLink, RedeemLink
from nodrop.relay.coordination.webhooks import Webhook, Webhooks
from nodrop.relay.relay import Caller
from nodrop.servers.a2a.following import Following
from nodrop.servers.listener.server import listen

DAY = 24 * 3_600_000


class Hook:
    """A webhook that can be told to refuse."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.got: asyncio.Queue[tuple[dict[str, str], Any]] = asyncio.Queue()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        self.got.put_nowait((headers, msgspec.json.decode(body)))

    async def next(self) -> tuple[dict[str, str], Any]:
        async with asyncio.timeout(20):
            return await self.got.get()

    async def told(self, count: int) -> list[str]:
        """Return what the next few pushes say, in short."""
        return [_short((await self.next())[1]) for _ in range(count)]

    def config(self, **fields: Any) -> TaskPushNotificationConfig:
        return TaskPushNotificationConfig(url=f"{self.url}/hook", **fields)


def _short(event: Any) -> str:
    if "artifactUpdate" in event:
        return "artifact"
    return event["statusUpdate"]["status"]["state"].removeprefix("TASK_STATE_").lower()


@pytest.fixture
async def hook() -> AsyncGenerator[Hook]:
    hook = Hook()
    async with listen(hook, host="127.0.0.1", port=0, frame_bytes_max=1_000_000) as url:
        hook.url = url
        yield hook


async def work(office: Any, task_id: str, result: Any = "done") -> None:
    coder = await office.member("coder")
    await coder("take")
    await coder("ack", task_id, attempt=1)
    await coder("complete", task_id, attempt=1, result=result)


async def test_a_webhook_hears_everything_in_order_and_its_last_word_settles(
    office: Any, hook: Hook
) -> None:
    planner = await office.peer("planner", "coder")
    request = office.asked("Fix it")
    request.configuration.return_immediately = True
    config = hook.config(
        token="t0", authentication=AuthenticationInfo(scheme="Bearer", credentials="c0")
    )
    request.configuration.task_push_notification_config.CopyFrom(config)
    (task,) = [answer.task async for answer in planner.client.send_message(request)]
    headers, first = await hook.next()
    assert _short(first) == "submitted"
    assert headers["content-type"] == "application/a2a+json"
    assert (headers["authorization"], headers["x-a2a-notification-token"]) == ("Bearer c0", "t0")
    await work(office, task.id)
    assert await hook.told(4) == ["submitted", "working", "artifact", "completed"]
    settled = await office.until(task.id, settled=True)
    assert settled["state"] == "completed"


@pytest.mark.parametrize("who", ["observer", "viewer"])
async def test_nothing_is_pushed_for_who_may_only_look(office: Any, hook: Hook, who: str) -> None:
    planner = await office.peer("planner", "coder")
    task = await planner.task("Fix it")
    await planner.client.create_task_push_notification_config(hook.config(task_id=task.id, id="a"))
    if who == "observer":  # in the name of a party, as an observer's token may be
        token = "nd_planner_looks"
        await office.relay.ensure_token("default", agent="planner", role=who, secret=token)
    else:
        me = Caller(team="default", agent="me", operator=True)
        link = CreateLink(kind="view", payloads=True)
        made: Any = (await office.relay.call(me, "create_link", link)).answer
        code = RedeemLink(code=made.code)
        redeemed: Any = (await office.relay.call(me, "redeem_link", code)).answer
        token = redeemed.token
    before, nobody = await office.entries(), await office.http(None)
    headers = {"a2a-version": "1.0", "authorization": f"Bearer {token}"}
    for method, params in (
        ("CreateTaskPushNotificationConfig", {"taskId": task.id, "url": f"{hook.url}/hook"}),
        ("DeleteTaskPushNotificationConfig", {"taskId": task.id, "id": "a"}),
    ):
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await nobody.post("/agents/coder/", json=asked, headers=headers)
        assert "forbidden" in answer.text, answer.text
    assert await office.entries() == before


async def test_what_a_webhook_does_not_take_is_sent_again_under_the_same_id(
    office: Any, hook: Hook
) -> None:
    hook.status = 503
    planner = await office.peer("planner", "coder")
    task = await planner.task("Fix it")
    await planner.client.create_task_push_notification_config(hook.config(task_id=task.id, id="a"))
    await work(office, task.id)
    headers, event = await hook.next()
    for wait_ms in (1_000, 2_000, 4_000):
        await office.clock.somebody_sleeps(wait_ms)
        assert hook.got.empty()
        office.clock.advance(wait_ms)
        again, same = await hook.next()
        assert (again["webhook-id"], same) == (headers["webhook-id"], event)
    hook.status = 204
    await office.clock.somebody_sleeps(8_000)
    office.clock.advance(8_000)
    assert await hook.told(4) == ["submitted", "working", "artifact", "completed"]


async def test_what_was_not_sent_before_a_restart_is_sent_after_it_and_nothing_twice(
    office: Any, hook: Hook
) -> None:
    planner = await office.peer("planner", "coder")
    task = await planner.task("Fix it")
    await planner.client.create_task_push_notification_config(hook.config(task_id=task.id, id="a"))
    coder = await office.member("coder")
    await coder("take")
    assert await hook.told(1) == ["submitted"]
    await coder("ack", task.id, attempt=1)
    assert await hook.told(1) == ["working"]
    hook.status = 503
    await coder("complete", task.id, attempt=1, result=1)
    before, _ = await hook.next()
    await office.restart()
    hook.status = 200
    after, event = await hook.next()
    assert (_short(event), after["webhook-id"]) == ("artifact", before["webhook-id"])
    assert await hook.told(1) == ["completed"]
    await office.until(task.id, settled=True)
    await office.restart()
    await office.member("me")
    assert hook.got.empty()


async def test_without_its_cursor_a_webhook_would_hear_it_all_again(
    office: Any, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(self: Webhooks, hook: Webhook, **moved: Any) -> None:
        del self, hook, moved

    monkeypatch.setattr(Webhooks, "advance", forget)
    planner = await office.peer("planner", "coder")
    task = await planner.task("Fix it")
    await planner.client.create_task_push_notification_config(hook.config(task_id=task.id, id="a"))
    await (await office.member("coder"))("take")
    assert await hook.told(1) == ["submitted"]
    await office.restart()
    assert await hook.told(1) == ["submitted"]


async def test_a_handoff_of_a_log_that_was_put_back_is_followed_from_its_beginning() -> None:
    asked: list[int] = []

    class Restored:
        agent = "planner"

        async def call(self, operation: str, fields: Any, **_: Any) -> Any:
            assert operation == "log"
            asked.append(fields["after"])
            if fields["after"] > 2:
                raise CursorUnknownError
            return {"entries": [{"seq": 2}], "after": 2}

    entries = Following().entries(Restored(), "h", after=51)
    assert await anext(entries) == {"seq": 2}
    await entries.aclose()
    assert asked == [51, 0]


async def test_a_webhook_that_is_gone_for_a_day_is_given_up_and_the_log_says_so(
    office: Any, hook: Hook
) -> None:
    hook.status = 500
    planner = await office.peer("planner", "coder")
    task = await planner.task("Fix it", terms={"deadline": "30d"})
    await planner.client.create_task_push_notification_config(hook.config(task_id=task.id, id="a"))
    coder = await office.member("coder")
    await coder("take")
    await coder("ack", task.id, attempt=1)
    await hook.next()
    await office.clock.somebody_sleeps(1_000)
    office.clock.advance(DAY)
    await hook.next()
    me = await office.member("me")
    async with asyncio.timeout(20):
        page = await me("log", handoff_id=task.id, type="handoff.noted.v1", wait="1s")
    assert "gave up" in page["entries"][0]["body"]["text"]
    hook.status = 200
    await coder("complete", task.id, attempt=1, result=1)
    assert hook.got.empty()


async def test_configs_are_kept_listed_and_dropped_by_whose_they_are(
    office: Any, hook: Hook
) -> None:
    planner, other = await office.peer("planner", "coder"), await office.peer("me", "coder")
    task = await planner.task("Fix it")
    client = planner.client
    for name in ("b", "a"):
        await client.create_task_push_notification_config(hook.config(task_id=task.id, id=name))
    wanted = ListTaskPushNotificationConfigsRequest(task_id=task.id)
    assert [c.id for c in (await client.list_task_push_notification_configs(wanted)).configs] == [
        "a",
        "b",
    ]
    # An operator sees the task; where others are told of it, and with which secrets, it does not.
    assert not (await other.client.list_task_push_notification_configs(wanted)).configs
    await office.restart()
    planner = await office.peer("planner", "coder")
    one = GetTaskPushNotificationConfigRequest(task_id=task.id, id="a")
    assert (await planner.client.get_task_push_notification_config(one)).url == f"{hook.url}/hook"
    gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="a")
    for _ in range(2):
        await planner.client.delete_task_push_notification_config(gone)
    refused = await planner.refused(planner.client.get_task_push_notification_config(one))
    assert isinstance(refused, TaskNotFoundError)


@pytest.mark.parametrize(
    "url",
    [
        "http://10.1.2.3/hook",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/hook",
        "http://0.0.0.0/",
        "http://[::ffff:10.0.0.1]/",
        "http://100.64.0.1/",
        "http://localhost/hook",
        "ftp://example.com/",
        "http://user:secret@example.com/",
        "http:///nothing",
        "https://example.com:99999/",
        "no address",
    ],
)
async def test_nobody_makes_the_relay_call_what_only_it_can_reach(office: Any, url: str) -> None:
    planner = await office.peer("planner", "coder")
    task = await planner.task("Fix it")
    config = TaskPushNotificationConfig(task_id=task.id, url=url)
    refused = await planner.refused(planner.client.create_task_push_notification_config(config))
    assert isinstance(refused, InvalidParamsError)


# --- several relays on one store ---


async def asked_at(office: Any, hook: Hook) -> tuple[Any, str]:
    """Return who asked at a relay to be told at the hook, and of which task."""
    planner = await office.peer("planner", "coder")
    task = await planner.task("Fix it")
    await planner.client.create_task_push_notification_config(hook.config(task_id=task.id, id="a"))
    return planner, task.id


async def test_whichever_relay_is_asked_everything_is_told_once(
    offices: tuple[Any, Any], hook: Hook
) -> None:
    for asked, worked in (offices, offices[::-1]):
        planner, task_id = await asked_at(asked, hook)
        await work(worked, task_id)
        assert await hook.told(4) == ["submitted", "working", "artifact", "completed"]
        await asked.until(task_id, settled=True)
        assert hook.got.empty()
        del planner


async def test_what_is_asked_at_one_relay_is_shown_and_dropped_at_another(
    offices: tuple[Any, Any], hook: Hook
) -> None:
    here, there = offices
    for asked, dropped in ((here, there), (there, here)):
        _, task_id = await asked_at(asked, hook)
        coder = await asked.member("coder")
        await coder("take")
        assert await hook.told(1) == ["submitted"]
        other = (await dropped.peer("planner", "coder")).client
        wanted = ListTaskPushNotificationConfigsRequest(task_id=task_id)
        shown = (await other.list_task_push_notification_configs(wanted)).configs
        assert [(c.id, c.url) for c in shown] == [("a", f"{hook.url}/hook")]
        gone = DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="a")
        await other.delete_task_push_notification_config(gone)
        await other.create_task_push_notification_config(hook.config(task_id=task_id, id="b"))
        await coder("ack", task_id, attempt=1)
        await coder("complete", task_id, attempt=1, result=1)
        told = [await hook.next() for _ in range(3)]
        assert [_short(event) for _, event in told] == ["working", "artifact", "completed"]
        assert {headers["webhook-id"].split("/")[1] for headers, _ in told} == {"b"}
        await asked.until(task_id, settled=True)
        assert hook.got.empty()


async def test_when_the_relay_that_pushes_is_gone_another_goes_on_where_it_was(
    offices: tuple[Any, Any], hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, advanced = Webhooks.advance, asyncio.Queue[tuple[str, int]]()

    async def tell(self: Webhooks, of: Webhook, *, sent: int) -> None:
        await advance(self, of, sent=sent)
        advanced.put_nowait((of.handoff_id, sent))

    monkeypatch.setattr(Webhooks, "advance", tell)
    here, there = offices
    tasks = [(await asked_at(office, hook))[1] for office in offices]
    coder = await here.member("coder")
    for _ in tasks:
        await coder("take")
    assert await hook.told(2) == ["submitted"] * 2
    # What arrived and is not yet known to have arrived would be told again.
    logs = [(await coder("log", handoff_id=task_id))["entries"] for task_id in tasks]
    missing = {(task_id, log[-1]["seq"]) for task_id, log in zip(tasks, logs, strict=True)}
    async with asyncio.timeout(20):
        while missing:
            missing.discard(await advanced.get())
    await here.close()
    coder = await there.member("coder")
    for task_id in tasks:
        await coder("ack", task_id, attempt=1)
        await coder("complete", task_id, attempt=1, result=1)
    told = [_short((await hook.next())[1]) for _ in range(6)]
    assert sorted(told) == sorted(["working", "artifact", "completed"] * 2)
    for task_id in tasks:
        await there.until(task_id, settled=True)
    assert hook.got.empty()


async def test_a_push_goes_on_after_the_store_could_not_be_reached(
    office: Any, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, task_id = await asked_at(office, hook)
    advance, failed = Webhooks.advance, asyncio.Event()

    async def fail_once(self: Webhooks, of: Webhook, *, sent: int) -> None:
        # Not before: entries that a webhook is told nothing of move its cursor too.
        if not hook.got.empty() and not failed.is_set():
            failed.set()
            raise StoreUnavailableError("away")
        await advance(self, of, sent=sent)

    monkeypatch.setattr(Webhooks, "advance", fail_once)
    await work(office, task_id)
    async with asyncio.timeout(20):
        await failed.wait()
    await office.clock.somebody_sleeps(1_000)
    office.clock.advance(1_000)
    told = [_short((await hook.next())[1]) for _ in range(5)]
    # What was not known to have arrived is told again.
    assert told == ["submitted", "submitted", "working", "artifact", "completed"]


async def test_what_is_to_be_pushed_is_asked_for_again_where_the_store_did_not_say(
    office: Any, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, task_id = await asked_at(office, hook)
    await (await office.member("coder"))("take")
    assert await hook.told(1) == ["submitted"]
    pending, failed = Webhooks.pending, asyncio.Event()

    async def fail_once(self: Webhooks, handoff: Any = None) -> list[Webhook]:
        if not failed.is_set():
            failed.set()
            raise StoreUnavailableError("away")
        return await pending(self, handoff)

    monkeypatch.setattr(Webhooks, "pending", fail_once)
    await office.restart()
    coder = await office.member("coder")
    await coder("ack", task_id, attempt=1)
    assert await hook.told(1) == ["working"]
    assert failed.is_set()
