"""code_agent of the demo: opens a ticket, looks into the bug, and is killed while it does."""

import asyncio
import os
from functools import partial
from pathlib import Path

import nodrop

LOOKS = 6
LOOK_SECONDS = 0.5

agent = nodrop.Agent("code_agent", description="Investigates bugs")


def open_ticket(issue: str, key: str) -> str:
    """Open a ticket in a system outside the relay: a file, one line for each."""
    with Path(os.environ["NODROP_DEMO_TICKETS"]).open("a", encoding="utf-8") as tickets:
        tickets.write(f"{key} {issue}\n")
    return "T-1"


@agent.capability("bug_triage", timeout="10m")
async def bug_triage(task: nodrop.Task, issue: str) -> dict[str, str]:
    """Find out what is wrong, and when it will be right."""
    ticket = await task.once("open-ticket", partial(open_ticket, issue))
    for look in range(1, LOOKS + 1):
        await task.update(f"reproducing {ticket}, {look} of {LOOKS}", eta="2h")
        await asyncio.sleep(LOOK_SECONDS)
    return {"ticket": ticket, "cause": "a touch handler swallows the tap", "timeline": "Friday"}


if __name__ == "__main__":
    agent.run(heartbeat_seconds=0.5)
