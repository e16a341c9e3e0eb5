"""Guessing a body from its digest in the log, by having guesses digested: with and without the salt."""

from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nodrop import app
from nodrop.app import machine
from nodrop.servers.inprocess import InProcessTransport

SECRET = 73
GUESSES = range(60, 90)


def body(salary: int) -> dict[str, Any]:
    return {"title": "a raise", "payload": {"salary": salary}}


async def guessed(home: Path, *, erased: bool) -> list[int]:
    """Return the salaries that a third agent finds for an offer between two others."""
    async with app.open_relay(app.MEMORY, home=home) as relay:

        async def joined(agent: str, role: str = "agent") -> InProcessTransport:
            await relay.ensure_token("default", agent=agent, role=role, secret=f"nd_{agent}")
            return InProcessTransport(relay, await relay.authenticate(f"nd_{agent}"))

        boss, mallory, me = [
            await joined("boss"),
            await joined("mallory"),
            await joined("me", "operator"),
        ]
        offered = (await boss.call("offer", {"to": "payroll", **body(SECRET)}))["handoff"]["id"]
        if erased:
            await boss.call("cancel", {}, handoff=offered)
            await me.call("erase", {}, handoff=offered)

        async def digest_of(handoff: str) -> str:
            page = await mallory.call("log", {"handoff_id": handoff})
            [entry] = [e for e in page["entries"] if e["type"] == "handoff.offered.v1"]
            assert handoff != offered or not entry.get("body"), "it is not hers to read"
            return entry["body_digest"]

        wanted, found = await digest_of(offered), list[int]()
        for salary in GUESSES:
            mine = await mallory.call("offer", {"to": "mallory", **body(salary)})
            if await digest_of(mine["handoff"]["id"]) == wanted:
                found.append(salary)
        return found


@pytest.mark.parametrize("erased", [False, True], ids=["kept", "erased"])
@pytest.mark.parametrize(
    ("salts", "found"),
    [
        (nullcontext(), []),
        (mock.patch.object(machine, "_salts", return_value=repeat(bytes(16))), [SECRET]),
    ],
    ids=["salted", "CONTROL: one salt for all"],
)
async def test_guesses_have_other_digests_than_what_is_guessed(
    tmp_path: Path, *, salts: AbstractContextManager[Any], found: list[int], erased: bool
) -> None:
    with salts:
        assert await guessed(tmp_path, erased=erased) == found
