"""A bug report goes from hand to hand: inbox, code, inbox again, support; with a person in between.

The contract has a trigger, a payload, a deadline and an escalation; the recipient says where it is
in its queue and when it will report; being stuck is told to everybody; silence reaches the person
`me`, who answers from the terminal. Here a minute of the contract lasts a second.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import nodrop

NODROP = [sys.executable, "-m", "nodrop.cli"]
PATIENCE = "60s"


@contextmanager
def relay() -> Generator[str]:
    """Serve a relay of its own while the example runs; yields its address."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["NODROP_HOME"] = home
        command = [*NODROP, "up", "--port", "0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                yield json.loads(process.stdout.readline())["url"]
            finally:
                process.terminate()


def terminal(*command: str) -> str:
    """Type a command, as the person at the terminal."""
    done = subprocess.run([*NODROP, *command], capture_output=True, text=True, check=True)
    return done.stdout


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


async def main(url: str) -> None:
    async with (
        nodrop.connect(url, agent="inbox_monitor") as inbox,
        nodrop.connect(url, agent="code_agent") as code,
        nodrop.connect(url, agent="support_agent") as support,
        nodrop.connect(url, agent="me") as me,
    ):
        handoff = await inbox.hand_off(
            to="code_agent",
            trigger="Bug report detected",
            title="Login button not working on mobile",
            payload={"email_id": "msg_123", "customer": "jane@company.com"},
            expected_outcome="Investigate and provide timeline",
            deadline="4m",
            update_every="1s",
            escalation=[{"when": "silent", "after": "1s", "notify": "me"}],
            then=[
                {"to": "inbox_monitor", "title": "Customer-ready response"},
                {"to": "support_agent", "title": "Final review"},
            ],
            idempotency_key="msg_123",
        )
        print(handoff.ref, "is", handoff.receipts[-1].rung)

        bug = await take(code, status="Added to queue", position=2, eta="2m")
        ack = await handoff.acknowledged(wait=PATIENCE)
        print("code_agent says:", ack.status, f"(position {ack.position})")
        place = (bug["chain"]["origin"], bug["to"], *bug["chain"]["next"])
        print("its place:", " → ".join(place))

        await code.status("stuck", "no device to try it on", about=bug["id"])
        print("inbox_monitor hears:", (await item(inbox, "notice", "stuck")).summary)
        print("me hears:", (await item(me, "notice", "escalated")).summary)

        question = {"attempt": 1, "question": "Which app version?", "to": "me"}
        await code.call("block", question, handoff=bug["id"])
        print("me is asked:", (await item(me, "question", "version")).summary)
        terminal("answer", "inbox_monitor/msg_123", "4.2")
        await code.call("get_handoff", {"wait": PATIENCE, "until": "unblocked"}, handoff=bug["id"])
        result = {"cause": "css", "usage": {"input_tokens": 1200}}
        await code.call("complete", {"attempt": 1, "result": result}, handoff=bug["id"])

        response = await take(inbox)
        print("inbox_monitor is given:", response["payload"]["result"]["cause"])
        done = {"attempt": 1, "result": "Dear Jane, it is fixed."}
        await inbox.call("complete", done, handoff=response["id"])
        review = await take(support)
        await support.call("complete", {"attempt": 1, "result": "sent"}, handoff=review["id"])
        print("the chain's result:", await handoff.result(wait=PATIENCE, of="chain"))

    print(terminal("trace", "inbox_monitor/msg_123", "--mermaid").split("    classDef")[0], end="")
    report = json.loads(terminal("debrief", "--since", "1h", "--json"))
    print(
        "debrief:", report["happened"], "owed", len(report["owed"]), "broke", len(report["broken"])
    )
    print("done about it:", *sorted(report["done"]), sep="\n  ")
    print("cost:", report["usage"])


if __name__ == "__main__":
    with relay() as served:
        asyncio.run(main(served))
