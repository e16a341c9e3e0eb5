"""Attacks on the WebSocket channel, where one says who one is in the first frame."""

from typing import Any

from kit.fortress import ELSEWHERE, Fortress
from nodrop.protocol.operations import OPERATIONS


async def test_the_channel_lets_nobody_in_who_does_not_say_who_it_is(fortress: Fortress) -> None:
    hellos: list[tuple[str, dict[str, str], Any]] = [
        ("/v1/channel", {}, {"id": 1, "op": "hello", "token": token})
        for token in (None, "", "token-mE", fortress.revoked, "Bearer token-me")
    ]
    hellos += [
        ("/v1/channel?token=token-me", {"cookie": "token=token-me"}, {"id": 1, "op": "hello"}),
        ("/v1/channel", {"authorization": "Basic token-me"}, {"id": 1, "op": "hello"}),
    ]
    hellos += [("/v1/channel", {}, {"id": 1, "op": name}) for name in (*OPERATIONS, "credit")]
    for path, headers, first in hellos:
        before, counts = await fortress.state(), fortress.refused()
        async with fortress.stranger.channel(path, headers=headers) as channel:
            channel.tell(first)
            assert (await channel.frame())["error"]["code"] == "unauthenticated"
            assert await channel.closed() == 4401
        assert await fortress.state() == before
        assert fortress.refused() - counts == {"unauthenticated": 1}, first
    for team in (ELSEWHERE, "nowhere"):
        counts = fortress.refused()
        async with fortress.stranger.channel(f"/teams/{team}/v1/channel") as channel:
            channel.tell({"id": 1, "op": "hello", "token": "token-me"})
            assert (await channel.frame())["error"]["code"] == "not_found"
        assert fortress.refused() - counts == {"foreign_team": 1}


async def test_an_observer_takes_no_work_and_hears_no_inbox(fortress: Fortress) -> None:
    hello = {"id": 1, "op": "hello", "token": "token-watcher"}
    async with fortress.stranger.channel() as channel:
        channel.tell(hello, {"id": 2, "op": "credit", "n": 1}, {"id": 3, "op": "inbox"})
        assert (await channel.frame())["ok"]["agent"] == "watcher"
        told = {(frame := await channel.frame())["id"]: frame["error"]["code"] for _ in range(2)}
    assert told == {2: "forbidden", 3: "forbidden"}
    assert fortress.refused()["forbidden"] == 2
