"""A relay in this process, and agents whose work is a script of the port's events."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import nodrop
from nodrop.adapters.port.events import Resume, Run, Work
from nodrop.adapters.port.sealing import Seal
from nodrop.adapters.port.serving import Serving

ADDRESS = ":memory:"
WAIT = "20s"
HEARTBEAT_SECONDS = 3.0
"""A cancel is heard of with the next one; after three that are missing an agent is taken for dead,
and this process may be kept from running for longer than one would think."""

Script = Callable[[Work, Resume | None], Run]
Acting = Callable[..., AbstractAsyncContextManager[nodrop.Agent]]


class Scripted:
    """A driver that does what a test wrote down."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def drive(self, work: Work, resume: Resume | None) -> Run:
        return self._script(work, resume)


@pytest.fixture
async def me(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[nodrop.Client]:
    """Whoever hands off; the relay lives as long as it is connected."""
    monkeypatch.setenv("NODROP_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    async with nodrop.connect(ADDRESS, agent="boss") as client:
        yield client


@pytest.fixture
def acting(me: nodrop.Client) -> Acting:
    """An agent that works by a script while the block runs."""

    @asynccontextmanager
    async def acting(
        script: Script,
        name: str = "actor",
        *,
        seal: Seal | None = None,
        progress_seconds_min: float = 0,
    ) -> AsyncGenerator[nodrop.Agent]:
        serving = Serving(
            Scripted(script),
            framework="script",
            agent=name,
            seal=seal,
            progress_seconds_min=progress_seconds_min,
        )
        agent = nodrop.Agent(name, concurrency=4)
        agent.handler(serving.handle)
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.serve(ADDRESS, heartbeat_seconds=HEARTBEAT_SECONDS, grace=0))
            try:
                yield agent
            finally:
                agent.stop()

    assert me is not None, "the relay is there"
    return acting
