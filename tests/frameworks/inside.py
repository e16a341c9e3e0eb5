"""A relay in the test's own process, and agents that serve there while a block runs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import nodrop

ADDRESS = ":memory:"
WAIT = "30s"


@asynccontextmanager
async def serving(*several: nodrop.Agent) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        for agent in several:
            group.create_task(agent.serve(ADDRESS, grace=0))
        try:
            yield
        finally:
            for agent in several:
                agent.stop()


def legal() -> nodrop.Agent:
    """An agent that is made with no framework at all."""
    agent = nodrop.Agent("legal")

    @agent.handler
    async def review(task: nodrop.Task) -> str:
        return f"no objections to {task.payload['task']}"

    return agent
