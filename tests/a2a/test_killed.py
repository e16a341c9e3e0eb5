"""kill -9 of a relay in the middle of a task: a process of its own, as a user runs it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

import nodrop
from nodrop.client.auth.credentials import CredentialsFile
from nodrop_proof.chaos.relay_process import RelayProcess

PATIENCE_SECONDS = 40
AGENT = "/agents/coder"


@asynccontextmanager
async def caller(relay: RelayProcess, name: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Somebody with a token of its own, on a connection that may break."""
    operator = CredentialsFile(relay.home).read().operator
    async with httpx.AsyncClient(base_url=relay.url, timeout=20) as http:
        made = await http.post(
            "/v1/tokens",
            json={"agent": name},
            headers={"authorization": f"Bearer {operator}"},
        )
        http.headers["authorization"] = f"Bearer {made.json()['token']}"
        yield http


async def send(http: httpx.AsyncClient, text: str) -> str:
    sent = {
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": {"returnImmediately": True},
    }
    answer = (await http.post(f"{AGENT}/message:send", json=sent)).json()["task"]
    assert answer["status"]["state"] == "TASK_STATE_SUBMITTED"
    return answer["id"]


async def followed(http: httpx.AsyncClient, task_id: str) -> list[str]:
    """Return the states that a stream tells of, until it ends."""
    told: list[str] = []
    async with http.stream("POST", f"{AGENT}/tasks/{task_id}:subscribe") as stream:
        if stream.status_code != 200:
            return told
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                event: Any = msgspec.json.decode(line.removeprefix("data:"))
                told += [shown["status"]["state"] for shown in event.values() if "status" in shown]
    return told


async def test_a_task_survives_the_relay_and_is_done_once(tmp_path: Path) -> None:
    runs: list[int] = []
    began, go_on = asyncio.Event(), asyncio.Event()
    agent = nodrop.Agent("coder")

    @agent.handler
    async def fix(task: nodrop.Task) -> str:
        runs.append(task.attempt)
        began.set()
        await go_on.wait()
        return "fixed"

    async with (
        RelayProcess(tmp_path) as relay,
        caller(relay, "planner") as planner,
        caller(relay, "coder"),  # who has a token has an endpoint, connected or not
    ):
        working = asyncio.create_task(agent.serve(relay.url, home=tmp_path, grace=0))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                task_id = await send(planner, "Fix it")
                await began.wait()
                watching = asyncio.create_task(followed(planner, task_id))
                await relay.kill()
                broken = await asyncio.gather(watching, return_exceptions=True)
                assert isinstance(broken[0], httpx.HTTPError)
                await relay.start()
                task = (await planner.get(f"{AGENT}/tasks/{task_id}")).json()
                assert task["status"]["state"] in {"TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"}
                resumed = asyncio.create_task(followed(planner, task_id))
                go_on.set()
                assert (await resumed)[-1:] in (["TASK_STATE_COMPLETED"], [])
                outcome = {"wait": "30s", "until": "finished"}
                await planner.get(f"/v1/handoffs/{task_id}", params=outcome)
                task = (await planner.get(f"{AGENT}/tasks/{task_id}")).json()
                assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
    assert task["artifacts"][0]["parts"] == [{"text": "fixed"}]
    assert runs == [1]


async def test_a_message_that_was_answered_before_the_kill_is_there_after_it(
    tmp_path: Path,
) -> None:
    async with RelayProcess(tmp_path) as relay, caller(relay, "planner") as planner:
        async with caller(relay, "coder"):
            task_id = await send(planner, "Fix it")
        await relay.kill()
        await relay.start()
        task = (await planner.get(f"{AGENT}/tasks/{task_id}")).json()
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert task["history"][0]["parts"] == [{"text": "Fix it"}]
