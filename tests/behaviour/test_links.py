"""Links: sign a browser in once as oneself, or let others look until the link expires."""

import asyncio
from typing import Any

import pytest

from nodrop.model.errors import ForbiddenError, LinkInvalidError, NodropError

MINUTE = 60_000
HOUR = 60 * MINUTE


async def redeemed(member: Any, code: str) -> str:
    """Return the bearer that a code is redeemed for."""
    return (await member("redeem_link", code=code))["token"]


async def code_for(office: Any, token: str) -> str:
    """Return the code with which whoever holds `token` is refused, or `ok`."""
    try:
        member = await office.enter(token)
        await member("list_handoffs")
    except NodropError as error:
        return error.code
    return "ok"


async def test_a_sign_in_link_signs_in_once_as_whoever_made_it(
    office: Any, code_agent: Any
) -> None:
    me = await office.person()
    link = await me("create_link")
    assert link["path"] == f"/#signin={link['code']}"
    answer = await me("redeem_link", code=link["code"])
    assert (answer["team"], answer["agent"], answer["role"], answer["payloads"]) == (
        "default",
        "me",
        "operator",
        True,
    )
    with pytest.raises(LinkInvalidError):
        await me("redeem_link", code=link["code"])
    itself = await office.enter(answer["token"])
    offered = (await itself("offer", to="code_agent", title="from the page"))["handoff"]
    assert offered["from"] == "me"
    own = await code_agent("redeem_link", code=(await code_agent("create_link"))["code"])
    assert (own["agent"], own["role"]) == ("code_agent", "agent")


async def test_of_two_who_redeem_a_sign_in_link_at_once_one_is_signed_in(office: Any) -> None:
    me = await office.person()
    code = (await me("create_link"))["code"]
    both = await asyncio.gather(
        *(me("redeem_link", code=code) for _ in range(2)), return_exceptions=True
    )
    assert sorted(isinstance(answer, LinkInvalidError) for answer in both) == [False, True]


async def test_a_sign_in_link_and_its_bearer_outlive_a_restart_and_expire(office: Any) -> None:
    me = await office.person()
    unused, used = await me("create_link"), await me("create_link")
    token = await redeemed(me, used["code"])
    await office.restart(down_ms=14 * MINUTE)
    me = await office.person()
    assert await code_for(office, token) == "ok"
    later = await redeemed(me, unused["code"])
    late = await me("create_link")
    office.clock.advance(16 * MINUTE)
    with pytest.raises(LinkInvalidError):
        await me("redeem_link", code=late["code"])
    office.clock.advance(12 * HOUR - 20 * MINUTE)
    assert await code_for(office, token) == "unauthenticated"
    assert await code_for(office, later) == "ok"


async def test_a_view_link_shows_where_everything_stands_and_no_words(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    offered = (await inbox_monitor("offer", to="code_agent", title="words", payload={"a": 1}))[
        "handoff"
    ]
    await code_agent("ack", offered["id"], status="more words")
    await code_agent("complete", offered["id"], attempt=1, result={"b": "words"})
    await me("note_team", text="words for the team")
    for payloads in (False, True):
        link = await me("create_link", kind="view", expires_in="24h", payloads=payloads)
        first, again = [await me("redeem_link", code=link["code"]) for _ in range(2)]
        assert first == again
        assert (first["role"], first["payloads"]) == ("observer", payloads)
        assert first["expires_at"] == link["expires_at"]
        viewer = await office.enter(first["token"])
        before = (await me("log"))["after"]
        for shown in (
            await viewer("get_handoff", offered["id"], wait="1s", until="finished"),
            await viewer("list_handoffs"),
            await viewer("trace", named=offered["correlation_id"]),
            await viewer("log"),
        ):
            assert ("words" in str(shown)) is payloads, shown
        for operation, about, fields in (
            ("offer", None, {"to": "code_agent"}),
            ("note_team", None, {"text": "hello"}),
            ("cancel", offered["id"], {}),
            ("create_token", None, {"agent": first["agent"], "role": "observer"}),
            ("create_link", None, {"kind": "view"}),
            ("create_link", None, {}),
            ("inbox", None, {}),
        ):
            with pytest.raises(ForbiddenError):
                await viewer(operation, about, **fields)
        assert (await me("log"))["after"] == before
    party = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert "outcome_delivered" in [receipt["rung"] for receipt in party["receipts"]]


async def test_a_view_link_expires_with_its_bearers(office: Any) -> None:
    me = await office.person()
    link = await me("create_link", kind="view", expires_in="1h")
    token = await redeemed(me, link["code"])
    assert await code_for(office, token) == "ok"
    office.clock.advance(1 * HOUR)
    with pytest.raises(LinkInvalidError):
        await me("redeem_link", code=link["code"])
    assert await code_for(office, token) == "unauthenticated"


@pytest.mark.parametrize("ended", ["expired", "revoked"])
async def test_a_viewer_that_follows_the_log_is_shown_nothing_after_the_end_of_its_link(
    office: Any, inbox_monitor: Any, ended: str
) -> None:
    me = await office.person()
    link = await me("create_link", kind="view", expires_in="30s")
    viewer = await office.enter(await redeemed(me, link["code"]))
    after = (await viewer("log"))["after"]
    following = office.start(viewer("log", after=after, wait="60s"))
    await office.settled()
    if ended == "expired":
        office.clock.advance(31_000)
    else:
        await me("revoke_token", named=link["token_id"])
    await inbox_monitor("offer", to="code_agent", title="too late")
    with pytest.raises(NodropError) as refused:
        await following
    assert refused.value.code == "unauthenticated"


async def test_links_are_listed_and_revoked_with_the_tokens(office: Any, code_agent: Any) -> None:
    me = await office.person()
    view = await me("create_link", kind="view", payloads=True)
    mine = await me("create_link")
    theirs = await code_agent("create_link")
    token = await redeemed(me, theirs["code"])
    listed = {t["token_id"]: t for t in (await me("list_tokens"))["tokens"]}
    assert listed[view["token_id"]]["kind"] == "view"
    assert listed[view["token_id"]]["payloads"] is True
    assert listed[view["token_id"]]["expires_at"] == view["expires_at"]
    assert listed[mine["token_id"]]["used_at"] is None
    assert listed[theirs["token_id"]]["used_at"] is not None
    assert not any(code in str(listed) for code in (view["code"], mine["code"], token))
    seen = {t["token_id"] for t in (await code_agent("list_tokens"))["tokens"]}
    assert theirs["token_id"] in seen
    assert seen.isdisjoint({view["token_id"], mine["token_id"]})
    with pytest.raises(NodropError) as refused:
        await code_agent("revoke_token", named=view["token_id"])
    assert refused.value.code == "not_found"
    viewer = await redeemed(me, view["code"])
    for link in (view, mine, theirs):
        await me("revoke_token", named=link["token_id"])
        with pytest.raises(LinkInvalidError):
            await me("redeem_link", code=link["code"])
    assert await code_for(office, token) == "unauthenticated"
    assert await code_for(office, viewer) == "unauthenticated"
    assert {view["token_id"], mine["token_id"], theirs["token_id"]}.isdisjoint(
        t["token_id"] for t in (await me("list_tokens"))["tokens"]
    )


async def test_who_may_make_which_link(office: Any, code_agent: Any) -> None:
    watcher = await office.join("watcher", role="observer")
    for member in (await office.person(), code_agent, watcher):
        assert (await member("create_link"))["kind"] == "sign_in"
    assert (await watcher("create_link", kind="view"))["kind"] == "view"
    for member, payloads in ((code_agent, False), (code_agent, True), (watcher, True)):
        with pytest.raises(ForbiddenError):
            await member("create_link", kind="view", payloads=payloads)
    observer = await watcher("redeem_link", code=(await watcher("create_link"))["code"])
    assert (observer["agent"], observer["role"], observer["payloads"]) == (
        "watcher",
        "observer",
        False,
    )


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "admin"}, {"expires_in": "31d"}, {"expires_in": "soon"}, {"kind": "view", "to": "x"}],
)
async def test_a_link_that_makes_no_sense_is_refused(office: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(NodropError) as refused:
        await (await office.person())("create_link", **wrong)
    assert refused.value.code == "invalid_request"
