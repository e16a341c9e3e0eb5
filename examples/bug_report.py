"""A bug report goes from hand to hand: inbox, code, inbox again, support; with a person in between.

The contract has a trigger, a payload, a deadline and an escalation; the recipient says where it is
in its queue, when it will be done and when it will report; being stuck is told to everybody; an hour
of silence reaches the person `me`, who answers from the terminal. The relay is the real one on a
clock that the example moves: the morning takes seconds.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nodrop
from nodrop import app
from nodrop.testing.clock import FakeClock

NINE = "2026-01-01T09:00:00Z"
MINUTE = 60_000
TEAM = ("inbox_monitor", "code_agent", "support_agent", "me")
PATIENCE = "60s"


async def terminal(*command: str) -> str:
    """Type a command, as the person at the terminal."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nodrop.cli", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()
    return printed.decode()


async def item(agent: Any, kind: str, words: str) -> Any:
    """Wait until something of a kind, with these words, is in somebody's inbox."""
    after = 0
    while True:
        inbox = await agent.inbox(after, wait=PATIENCE)
        for found in inbox:
            if found.kind == kind and words in found.summary:
                return found
        after = inbox.after


async def take(agent: Any, **said: Any) -> dict[str, Any]:
    """Take the next handoff and acknowledge it."""
    answer = await agent.call("take", {"wait": PATIENCE})
    delivery = answer["deliveries"][0]
    about = delivery["handoff"]["id"]
    acked = await agent.call("ack", {"attempt": delivery["attempt"], **said}, handoff=about)
    return acked["handoff"]


def told(text: str) -> str:
    """Return what is the same every time: ids are not."""
    return re.sub(r" *[0-9a-f]{8}-[0-9a-f-]{27}", "", text)


def time_in(text: Any) -> str:
    """Return hours and minutes of a time."""
    return str(text)[11:16]


async def story(clock: FakeClock, inbox: Any, code: Any, support: Any, me: Any) -> None:
    # code_agent is at something already.
    await me.hand_off(to="code_agent", title="Update the changelog", idempotency_key="changelog")
    await take(code)

    handoff = await inbox.hand_off(
        to="code_agent",
        trigger="Bug report detected",
        title="Login button not working on mobile",
        payload={"email_id": "msg_123", "customer": "jane@company.com"},
        expected_outcome="Investigate and provide timeline",
        deadline="4 hours",
        # A promise of half an hour that is not kept, and half an hour more: an hour of silence.
        escalation=[{"when": "silent", "after": "30m", "notify": "me"}],
        then=[
            {"to": "inbox_monitor", "title": "Customer-ready response"},
            {"to": "support_agent", "title": "Final review"},
        ],
        watchers=["support_agent"],
        idempotency_key="msg_123",
    )
    print(handoff.ref, "is", handoff.receipts[-1].rung)

    bug = await take(code, status="Added to queue", eta="2h", next_update="30m")
    ack = await handoff.acknowledged(wait=PATIENCE)
    print(f"09:00 code_agent: {ack.status} (position {ack.position})", end=", ")
    print(f"done by {time_in(ack.eta)}, next update by {time_in(ack.next_update)}")
    place = (bug["chain"]["origin"], bug["to"], *bug["chain"]["next"])
    print("      its place:", " → ".join(place))

    await code.status("stuck", "no device to try it on", about=bug["id"])
    for name, agent in (("inbox_monitor", inbox), ("support_agent", support)):
        print(f"      {name} hears:", (await item(agent, "notice", "stuck")).summary)

    clock.advance(30 * MINUTE)
    print(
        "09:30 code_agent is reminded:", (await item(code, "notice", "you owe an update")).summary
    )
    clock.advance(30 * MINUTE)
    print("10:00 me hears:", (await item(me, "notice", "code_agent owes")).summary)

    question = {"attempt": 1, "question": "Which app version?", "to": "me"}
    await code.call("block", question, handoff=bug["id"])
    await item(me, "question", "version")
    waiting = json.loads(await terminal("inbox", "--agent", "me", "--json"))["items"]
    print("      me reads:", *(f"{i['from']} {i['summary']}" for i in waiting[-1:]))
    await terminal("answer", "inbox_monitor/msg_123", "4.2 on Android", "--agent", "me")
    print("      me answers: 4.2 on Android")
    await code.call("get_handoff", {"wait": PATIENCE, "until": "unblocked"}, handoff=bug["id"])
    result = {"cause": "css", "usage": {"input_tokens": 1200}}
    await code.call("complete", {"attempt": 1, "result": result}, handoff=bug["id"])

    response = await take(inbox)
    print("      inbox_monitor is given:", response["payload"]["result"]["cause"])
    done = {"attempt": 1, "result": "Dear Jane, it is fixed."}
    await inbox.call("complete", done, handoff=response["id"])
    review = await take(support)
    await support.call("complete", {"attempt": 1, "result": "sent"}, handoff=review["id"])
    print("      the chain's result:", await handoff.result(wait=PATIENCE, of="chain"))


async def main(home: Path) -> None:
    """Start a relay at nine in the morning, tell the story, look at it from the terminal."""
    clock = FakeClock()
    clock.advance(9 * 60 * MINUTE)
    async with (
        app.open_relay(home / "team.db", home=home, clock=clock) as relay,
        app.listening(relay) as url,
        AsyncExitStack() as stack,
    ):
        agents: list[Any] = []
        for name in TEAM:
            role = "operator" if name == "me" else "agent"
            await relay.ensure_token("default", agent=name, role=role, secret=f"nd_{name}")
            connecting = nodrop.connect(url, agent=name, token=f"nd_{name}")
            agents.append(await stack.enter_async_context(connecting))
        os.environ |= {"NODROP_URL": url, "NODROP_TOKEN": "nd_me", "NODROP_HOME": str(home)}
        await story(clock, *agents)
        print(told(await terminal("trace", "inbox_monitor/msg_123")))
        report = await terminal("debrief", "--since", NINE)
        print(told(report.partition("\n\n")[2]), end="")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
