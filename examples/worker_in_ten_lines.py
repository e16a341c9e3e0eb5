"""A worker in ten lines, and somebody who hands it work.

The relay runs inside this process, on `team.db`; with the address of a relay that `nodrop up`
serves, worker and requester may be anywhere.
"""

import asyncio

import nodrop

agent = nodrop.Agent("code_agent", description="Investigates bugs")


@agent.capability("bug_triage", timeout="3h")
async def bug_triage(task: nodrop.Task, email_id: str) -> dict[str, str]:
    await task.update(f"reading {email_id}", eta="2h")
    return {"timeline": "fixed by tomorrow"}


async def main() -> None:
    working = asyncio.create_task(agent.serve("team.db"))
    async with nodrop.connect("team.db", agent="inbox_monitor") as me:
        handoff = await me.hand_off(
            to="code_agent",
            title="Login button not working on mobile",
            payload={"email_id": "msg_123"},
            idempotency_key="msg_123",
        )
        print(handoff.ref, "is", handoff.receipts[-1].rung)
        print(await handoff.result(wait="30s"))
        await me.flush()  # until the relay has heard that the result is here
        await handoff.refresh()
        print(" → ".join(receipt.rung for receipt in handoff.receipts))
    agent.stop()
    await working


if __name__ == "__main__":
    asyncio.run(main())
