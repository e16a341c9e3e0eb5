"""The relay and the frameworks of the cast as processes: started, waited for, killed, ended."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Self

import nodrop
from nodrop.client.client import Client

HERE = Path(__file__).parent
START_SECONDS_MAX = 240.0
STOP_SECONDS_MAX = 10.0
NOTE_SECONDS_MAX = 45.0
LOOK_SECONDS = 0.1

AGENTS = {
    "langgraph": ["langgraph"],
    "autogen": ["autogen", "autogen_object"],
    "crewai": ["crewai", "crewai_crew", "crewai_flow"],
    "openai_agents": ["openai_agents"],
    "pydantic_ai": ["pydantic_ai"],
    "google_adk": ["google_adk"],
    "agent_framework": ["agent_framework", "agent_framework_workflow"],
    "llama_index": ["llama_index"],
    "smolagents": ["smolagents", "smolagents_object"],
    "a2a": ["a2a"],
}
"""What each module of the cast puts on stage."""
EVERYONE = [name for names in AGENTS.values() for name in names]
TARGETS = [name for name in EVERYONE if not name.endswith("_object")]
"""Everyone who can be handed something to."""
THREADED = ["crewai", "crewai_crew", "smolagents"]
"""Who works in a thread that cannot be stopped, and holds its run while it asks."""
PARKING = [agent for agent in TARGETS if agent not in {*THREADED, "a2a"}]
"""Who ends with a question and goes on in another process. Behind A2A that is up to the other side."""
CALLERS = list(AGENTS)
"""Everyone who hands on: one of each framework, and of those who speak A2A."""


def stage_of(agent: str) -> str:
    """Return the module of the cast that an agent is in."""
    return next(stage for stage, agents in AGENTS.items() if agent in agents)


class Relay:
    """A relay in a process of its own, and others that know where it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: defaultdict[str, list[subprocess.Popen[bytes]]] = defaultdict(list)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("NODROP_")}
        self.environment = inherited | {
            "NODROP_HOME": str(folder / "home"),
            "NODROP_URL": self.url,
            "CAST_FOLDER": str(folder),
            "PYTHONPATH": os.pathsep.join(
                [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "PYTHONWARNINGS": "ignore",  # the frameworks' own
        }

    def __enter__(self) -> Self:
        self.run("relay", "-m", "nodrop.cli", "up", "--port", str(self._port))
        try:
            asyncio.run(self._ready())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        processes = [process for several in self._running.values() for process in several]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a Python that knows the relay; what it says is in a log of its name."""
        number = len(self._running[name])
        with (self.folder / f"{name}-{number}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._running[name].append(process)
        return process

    def kill(self, name: str, pid: int | None = None) -> None:
        """End the processes of a name, or one of them, as a power cut would."""
        for process in list(self._running[name]):
            if pid is None or process.pid == pid:
                process.send_signal(signal.SIGKILL)
                process.wait(STOP_SECONDS_MAX)
                self._running[name].remove(process)

    async def noted(self, name: str) -> str:
        """Wait for a note that a process leaves in the folder, and return it."""
        note = self.folder / name
        async with asyncio.timeout(NOTE_SECONDS_MAX):
            while not note.exists() or not note.read_text(encoding="utf-8"):
                await asyncio.sleep(LOOK_SECONDS)  # another process writes it: nothing to await
        return note.read_text(encoding="utf-8")

    def connected(self, agent: str) -> AbstractAsyncContextManager[Client]:
        """Connect as somebody who hands things off."""
        return nodrop.connect(self.url, agent=agent, home=self.environment["NODROP_HOME"])

    async def _ready(self) -> None:
        await self.noted("home/credentials")  # a worker before that is let in by nobody


class Troupe(Relay):
    """A relay, and a process for every framework."""

    async def full(self, stage: str, processes: int) -> None:
        """Have a framework on stage in so many processes, and wait until it works."""
        while len(self._running[stage]) < processes:
            self._start(stage)
        async with self.connected("director") as me:
            for agent in AGENTS[stage]:
                await self._works(me, agent)

    def _start(self, stage: str) -> None:
        self.run(stage, "-m", "cast.stage", stage, ",".join(TARGETS))

    async def _ready(self) -> None:
        await super()._ready()
        for stage in AGENTS:
            self._start(stage)
        async with (
            asyncio.timeout(START_SECONDS_MAX),
            self.connected("director") as me,
            asyncio.TaskGroup() as group,
        ):
            watching = group.create_task(self._watched())
            waiting = [group.create_task(self._works(me, agent)) for agent in EVERYONE]
            await asyncio.gather(*waiting)
            watching.cancel()

    async def _watched(self) -> None:
        """Fail as soon as somebody has left the stage before the play."""
        while True:
            for stage, processes in self._running.items():
                if any(process.poll() is not None for process in processes):
                    log = (self.folder / f"{stage}-0.log").read_text(encoding="utf-8")
                    raise AssertionError(f"{stage} has ended: {log[-2_000:]}")
            await asyncio.sleep(LOOK_SECONDS)

    async def _works(self, me: Client, agent: str) -> None:
        """Wait for an answer: the first run of a framework loads half of it."""
        hello = await me.hand_off(
            agent,
            payload={"task": "report"},
            attempts_max=20,
            backoff={"first": "1s", "factor": 1},
        )
        await hello.result(wait=START_SECONDS_MAX)
