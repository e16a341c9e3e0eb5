"""What `docs/frameworks.md` says of code inside of a handoff, run where it says."""

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import nodrop
from nodrop.adapters.port.events import Done, Resume, Run, Work

Acting = Callable[..., AbstractAsyncContextManager[nodrop.Agent]]
PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
BLOCK = re.compile(
    r"^## What travels along\n.*?^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL
)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_code_inside_of_a_handoff_knows_and_asks_what_the_page_says(
    me: nodrop.Client, acting: Acting
) -> None:
    found = BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None, "the page has a snippet there"
    snippet = compile(found["code"], str(PAGE), "exec")

    async def running(_: Work, __: Resume | None) -> Run:
        names: dict[str, Any] = {}
        await asyncio.to_thread(exec, snippet, names)  # it blocks while it asks
        yield Done(output=[names[name] for name in ("chain", "trace", "left", "answer")])

    async with acting(running):
        handoff = await me.hand_off(
            "actor", correlation_id="case-7", traceparent=TRACEPARENT, deadline="1h"
        )
        (question,) = await me.inbox(wait="20s")
        assert (question.sender, question.summary) == ("actor", "asks: Which account?")
        await question.answer("account 42")
        chain, trace, left, answer = await handoff.result(wait="20s")
    assert (chain, trace.split("-")[1]) == ("case-7", TRACEPARENT.split("-")[1])
    assert 3_000 < left <= 3_600
    assert answer == "account 42"
