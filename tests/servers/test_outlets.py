"""Outlets: what comes into an inbox is sent on, at least once, in order, signed, and not to anywhere."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp.web
import pytest
from msgspec.structs import replace
from standardwebhooks import Webhook as Checker
from standardwebhooks import WebhookVerificationError

from nodrop import app
from nodrop.log.memory import MemoryStore
from nodrop.model.errors import ForbiddenError, InvalidRequestError, NotFoundError
from nodrop.outbound.outlets import sender, ways
from nodrop.outbound.outlets.sender import Sender
from nodrop.outbound.outlets.ways import Parcel, UnsentError
from nodrop.relay.coordination.outlets import Outlet
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

PATIENCE_SECONDS = 20


class Mailbox:
    """A way out that fails as often as it is told to."""

    def __init__(self) -> None:
        self.parcels: asyncio.Queue[Parcel] = asyncio.Queue()
        self.tried: asyncio.Queue[str] = asyncio.Queue()
        self.refuses = 0
        self.permanent = False

    async def send(self, parcel: Parcel, *, now: int) -> None:
        del now
        self.tried.put_nowait(parcel.id)
        if self.refuses:
            self.refuses -= 1
            raise UnsentError("nobody is in", permanent=self.permanent)
        self.parcels.put_nowait(parcel)

    async def next(self) -> Parcel:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.parcels.get()


class Office:
    """A relay, its outlets, and the agents at its door."""

    def __init__(self, home: Path) -> None:
        self.clock = FakeClock()
        self.mailbox = Mailbox()
        self.store = MemoryStore()
        self.relay: Relay
        self._home = home

    async def open(self) -> None:
        self.relay = await Relay.start(
            self.store,
            clock=self.clock,
            ids=app.SystemIds(),
            signer=app.KeyFile(self._home / "relay.pem"),
        )
        await self.relay.ensure_team("default")

    def sending(self) -> Any:
        return Sender(self.relay, clock=self.clock, way_of=lambda _: self.mailbox).running()

    async def until_escalated(self, count: int) -> None:
        """Wait until so many escalation steps are in the log."""
        me, after = await self.member("me"), 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len((await me.call("log", {"type": "handoff.escalated.v1"}))["entries"]) < count:
                after = (await me.call("log", {"after": after, "wait": "60s"}))["after"]

    async def member(self, name: str) -> InProcessTransport:
        role = "operator" if name == "me" else "agent"
        secret = f"nd_{name}"
        await self.relay.ensure_token("default", agent=name, role=role, secret=secret)
        return InProcessTransport(self.relay, await self.relay.authenticate(secret))


@pytest.fixture
async def office(tmp_path: Path) -> AsyncGenerator[Office]:
    office = Office(tmp_path)
    await office.open()
    yield office
    await office.relay.stop()


PLACE = {"url": "mailto://x", "kind": "notify"}


async def test_a_question_reaches_the_person_with_what_is_owed_and_the_command(
    office: Office,
) -> None:
    me, asker, worker = [await office.member(name) for name in ("me", "asker", "worker")]
    async with office.sending():
        await me.call("put_outlet", PLACE, name="mail")
        offer = {"to": "worker", "title": "bug", "idempotency_key": "k1"}
        handoff = (await asker.call("offer", offer))["handoff"]["id"]
        await worker.call("ack", {}, handoff=handoff)
        question = {"attempt": 1, "question": "Which version?", "to": "me"}
        await worker.call("block", question, handoff=handoff)
        parcel = await office.mailbox.next()
    assert parcel.subject == "Nodrop: question from worker"
    assert '"asks: Which version?"' in parcel.text
    assert "me owes the next move by " in parcel.text
    assert parcel.text.endswith("nodrop answer asker/k1 'TEXT'")


async def ten_dead(office: Office) -> None:
    asker, worker = await office.member("asker"), await office.member("worker")
    for n in range(10):
        offer = {"to": "worker", "title": f"bug {n}", "idempotency_key": f"k{n}"}
        handoff = (await asker.call("offer", offer))["handoff"]["id"]
        await worker.call("ack", {}, handoff=handoff)
        await worker.call("fail", {"attempt": 1, "reason": "no access"}, handoff=handoff)
    await office.until_escalated(10)


async def all_sent(office: Office, me: InProcessTransport, count: int) -> dict[str, Any]:
    """Move the clock until an outlet has sent so many items; return the outlet."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            [outlet] = (await me.call("outlets", {}))["outlets"]
            if outlet["sent"] == count:
                return outlet
            office.clock.advance(1_000)
            await asyncio.sleep(0)


async def test_notices_to_a_person_are_gathered_into_one_message(office: Office) -> None:
    me, other = await office.member("me"), await office.member("other")
    async with office.sending():
        await me.call("put_outlet", PLACE, name="mail")
        await ten_dead(office)
        assert office.mailbox.parcels.empty(), "the first one waits for the others"
        await all_sent(office, me, 10)
        parcel = await office.mailbox.next()
        assert office.mailbox.parcels.empty()
        await other.call("say", {"text": "hello", "to": "me"})
        assert (await office.mailbox.next()).subject == "Nodrop: message from other"
    assert parcel.subject == "Nodrop: 10 handoffs failed with worker"
    assert parcel.text == "\n".join(
        [
            (
                '10 handoffs failed with worker, "no access", since 2026-01-01T00:00:00.000Z'
                ' (the team\'s step "dead")'
            ),
            *[f'  asker/k{n} "bug {n}"' for n in range(5)],
            "  and 5 more",
            "",
            "nodrop dlq list",
            "nodrop dismiss asker/k0 --alike",
        ]
    )


async def test_notices_that_are_sent_one_by_one_are_noticed(office: Office) -> None:
    """The control of the story before."""
    me = await office.member("me")
    with mock.patch.object(sender, "_is_notice", return_value=False):
        async with office.sending():
            await me.call("put_outlet", PLACE, name="mail")
            await ten_dead(office)
            await all_sent(office, me, 10)
    assert office.mailbox.parcels.qsize() == 10


async def test_what_came_with_notices_is_in_the_same_message(office: Office) -> None:
    me, other = await office.member("me"), await office.member("other")
    async with office.sending():
        await me.call("put_outlet", PLACE, name="mail")
        await ten_dead(office)
        await other.call("say", {"text": "hello", "to": "me"})
        await all_sent(office, me, 11)
        parcel = await office.mailbox.next()
        assert office.mailbox.parcels.empty()
    assert parcel.subject == "Nodrop: 1 notice, 1 message"
    assert parcel.text.startswith("10 handoffs failed with worker, ")
    assert parcel.text.endswith('"hello"\n\nnodrop messages')


async def test_a_webhook_gets_every_notice_by_itself(office: Office) -> None:
    me = await office.member("me")
    async with office.sending():
        await me.call("put_outlet", {"url": "https://example.com/hook"}, name="hook")
        await ten_dead(office)
        await all_sent(office, me, 10)
        parcels = [await office.mailbox.next() for _ in range(10)]
    assert [parcel.data["item"]["ref"] for parcel in parcels] == [f"asker/k{n}" for n in range(10)]
    assert len({parcel.id for parcel in parcels}) == 10


async def test_gathered_notices_that_cannot_be_sent_are_given_up_one_by_one(
    office: Office,
) -> None:
    me = await office.member("me")
    office.mailbox.refuses, office.mailbox.permanent = 1, True
    async with office.sending():
        await me.call("put_outlet", PLACE, name="mail")
        await ten_dead(office)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await me.call("outlets", {}))["outlets"][0]["given_up"] < 10:
                office.clock.advance(1_000)
                await asyncio.sleep(0)
    escalated = (await me.call("log", {"type": "handoff.escalated.v1"}))["entries"]
    given_up = (await me.call("log", {"type": "outlet.gave_up.v1"}))["entries"]
    assert [e["data"]["seq"] for e in given_up] == [e["seq"] for e in escalated]


async def test_what_cannot_be_sent_is_tried_again_and_nothing_overtakes_it(office: Office) -> None:
    me, other = await office.member("me"), await office.member("other")
    office.mailbox.refuses = 2
    async with office.sending():
        await me.call("put_outlet", PLACE, name="mail")
        for text in ("one", "two"):
            await other.call("say", {"text": text, "to": "me"})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while office.mailbox.parcels.empty():
                office.clock.advance(5_000)
                await asyncio.sleep(0)
        one, two = await office.mailbox.next(), await office.mailbox.next()
    tried = [office.mailbox.tried.get_nowait() for _ in range(3)]
    assert set(tried) == {one.id}, "its id stays the same"
    assert ['"one"' in one.text, '"two"' in two.text] == [True, True]


async def test_what_was_sent_is_not_sent_again_after_a_restart_and_what_was_not_is(
    office: Office,
) -> None:
    me, other = await office.member("me"), await office.member("other")
    async with office.sending():
        await me.call("put_outlet", PLACE, name="mail")
        await other.call("say", {"text": "before", "to": "me"})
        await office.mailbox.next()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await me.call("outlets", {}))["outlets"][0]["sent"]:
                await me.call("heartbeat", {})
    await other.call("say", {"text": "meanwhile", "to": "me"})
    await office.relay.stop()
    await office.open()
    async with office.sending():
        assert '"meanwhile"' in (await office.mailbox.next()).text


async def test_one_that_is_beyond_the_log_goes_back_to_where_the_store_says(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    me, other = await office.member("me"), await office.member("other")
    await me.call("put_outlet", PLACE, name="mail")
    outlet = office.relay.outlets.get("default", "mail")
    assert outlet is not None
    await other.call("say", {"text": "one", "to": "me"})
    with mock.patch.dict(
        office.relay.outlets._outlets,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as a node would have it whose database was restored
        {("default", "mail"): replace(outlet, after=10_000)},
    ):
        async with office.sending():
            assert '"one"' in (await office.mailbox.next()).text
    assert "goes back to where the store says" in caplog.text


async def test_an_item_of_a_number_that_was_used_before_has_an_id_of_its_own(
    office: Office,
) -> None:
    me, other = await office.member("me"), await office.member("other")
    ids: list[str] = []
    for day in range(2):  # the second time on a log that was put back
        async with office.sending():
            await me.call("put_outlet", PLACE, name="mail")
            office.clock.advance(day)
            await other.call("say", {"text": "one", "to": "me"})
            ids.append((await office.mailbox.next()).id)
        await office.relay.stop()
        office.store = MemoryStore()
        await office.open()
        me, other = await office.member("me"), await office.member("other")
    assert ids[0].rpartition(".")[0] == ids[1].rpartition(".")[0]
    assert ids[0] != ids[1]


async def test_what_nobody_will_ever_take_is_given_up_in_the_log(office: Office) -> None:
    me, other = await office.member("me"), await office.member("other")
    office.mailbox.refuses, office.mailbox.permanent = 1, True
    async with office.sending():
        await me.call("put_outlet", PLACE, name="mail")
        await other.call("say", {"text": "lost", "to": "me"})
        await other.call("say", {"text": "found", "to": "me"})
        assert '"found"' in (await office.mailbox.next()).text
    [entry] = (await me.call("log", {"type": "outlet.gave_up.v1"}))["entries"]
    assert entry["data"]["name"] == "mail"


async def test_an_outlet_that_is_set_anew_does_not_wait_for_the_one_before(office: Office) -> None:
    me, other = await office.member("me"), await office.member("other")
    office.mailbox.refuses = 1
    async with office.sending():
        await me.call("put_outlet", PLACE, name="mail")
        await other.call("say", {"text": "lost", "to": "me"})
        async with asyncio.timeout(PATIENCE_SECONDS):
            await office.mailbox.tried.get()
        await me.call("put_outlet", {**PLACE, "test": True}, name="mail")
        assert "This is a test" in (await office.mailbox.next()).text, "no clock has moved"


async def test_a_test_arrives(office: Office) -> None:
    me = await office.member("me")
    async with office.sending():
        await me.call("put_outlet", {**PLACE, "test": True}, name="mail")
        assert "This is a test of the outlet mail" in (await office.mailbox.next()).text


async def test_outlets_are_for_ones_own_inbox_and_only_operators_reach_further(
    office: Office,
) -> None:
    me, agent = await office.member("me"), await office.member("agent")
    hook = {"url": "https://example.com/hook"}
    made = await agent.call("put_outlet", hook, name="mine")
    assert made["secret"].startswith("whsec_")
    for fields in (
        {**hook, "inbox": "me"},
        {**hook, "allow_private": True},
        {"url": "mailto://x", "kind": "notify"},
    ):
        with pytest.raises(ForbiddenError):
            await agent.call("put_outlet", fields, name="other")
    await me.call("put_outlet", hook, name="of_me")
    assert [o["name"] for o in (await agent.call("outlets", {}))["outlets"]] == ["mine"]
    with pytest.raises(NotFoundError):
        await agent.call("remove_outlet", {}, name="of_me")
    assert "example.com" not in str((await me.call("log", {"type": "outlet.*"}))["entries"])


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"url": "ftp://x"}, "url"),
        ({"url": "nowhere"}, "url"),
        ({"url": "https://x", "kind": "pigeon"}, "kind"),
        ({"url": "https://x", "kinds": ["letters"]}, "kinds"),
        ({"url": "https://x", "inbox": ""}, "inbox"),
        ({"url": "https://x", "secret": "short"}, "secret"),
        ({"url": "https://x", "secret": "whsec_"}, "secret"),
        ({"url": "https://x", "secret": "whsec_###"}, "secret"),
        ({"url": "http://[bad/"}, "url"),
        ({"url": "http:///nobody"}, "url"),
        ({"url": "http://x:99999/"}, "url"),
        ({"url": "http://x y/"}, "url"),
        ({"url": "http://x/\0"}, "url"),
        ({"url": "http://127.0.0.1:9/"}, "url"),
        ({"url": "http://localhost/"}, "url"),
        ({"url": "https://[::1]/"}, "url"),
        ({"url": "http://169.254.169.254/latest"}, "url"),
    ],
)
async def test_an_outlet_that_leads_nowhere_is_refused(
    office: Office, fields: dict[str, Any], path: str
) -> None:
    me = await office.member("me")
    with pytest.raises(InvalidRequestError) as refused:
        await me.call("put_outlet", fields, name="x")
    assert refused.value.errors[0].path == path
    assert (await me.call("outlets", {}))["outlets"] == []


# --- over a real connection ---------------------------------------------------------------------

PARCEL = Parcel(id="default.hook.7.message", subject="s", text="t", data={})


@pytest.fixture
async def hook() -> AsyncGenerator[tuple[str, list[aiohttp.web.Request], list[bytes]]]:
    """A server on this machine, what came to it, and with what."""
    requests_: list[aiohttp.web.Request] = []
    bodies: list[bytes] = []

    async def receive(request: aiohttp.web.Request) -> aiohttp.web.Response:
        requests_.append(request)
        bodies.append(await request.read())
        return aiohttp.web.Response(status=410 if request.path == "/gone" else 204)

    application = aiohttp.web.Application()
    application.router.add_post("/{tail:.*}", receive)
    runner = aiohttp.web.AppRunner(application)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}", requests_, bodies
    await runner.cleanup()


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def test_a_webhook_is_signed_as_the_standard_says(hook: Any) -> None:
    url, requests_, bodies = hook
    await ways.Webhook(f"{url}/hook", SECRET, allow_private=True).send(
        PARCEL, now=app.SystemClock().now()
    )
    headers = dict(requests_[0].headers)
    assert Checker(SECRET).verify(bodies[0], headers) == {"id": PARCEL.id}
    with pytest.raises(WebhookVerificationError):
        Checker(SECRET).verify(bodies[0] + b" ", headers)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]"])
async def test_a_private_address_is_not_reached(hook: Any, host: str) -> None:
    url, requests_, _ = hook
    port = url.rpartition(":")[2]
    with pytest.raises(UnsentError):
        await ways.Webhook(f"http://{host}:{port}/", SECRET, allow_private=False).send(
            PARCEL, now=app.SystemClock().now()
        )
    assert requests_ == []
    await ways.Webhook(f"{url}/", SECRET, allow_private=True).send(
        PARCEL, now=app.SystemClock().now()
    )
    assert len(requests_) == 1, "it was not for want of a listener"


async def test_who_is_gone_is_not_asked_again(hook: Any) -> None:
    url, _, _ = hook
    with pytest.raises(UnsentError) as unsent:
        await ways.Webhook(f"{url}/gone", SECRET, allow_private=True).send(
            PARCEL, now=app.SystemClock().now()
        )
    assert unsent.value.permanent


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Apprise looks for at its start
async def test_a_person_is_told_by_apprise(hook: Any) -> None:
    url, _, bodies = hook
    place = url.replace("http://", "json://")
    outlet = Outlet(
        name="n", team="default", kind="notify", agent="me", url=place, kinds=(), secret=None,
        allow_private=True, after=0,
    )  # fmt: skip
    await sender.way_of(outlet).send(PARCEL, now=app.SystemClock().now())
    assert b'"title": "s"' in bodies[0]
