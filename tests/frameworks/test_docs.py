"""Every snippet of `docs/frameworks.md` runs: one process serves, another hands off to it."""

import asyncio
import re
from pathlib import Path

import pytest

from troupe import Relay

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
SECTION = re.compile(r"^## (?P<name>.+?)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"\s*(?!#|import |from )\S")
RUN_SECONDS_MAX = 120.0
LINES_MAX = 10
"""Of a snippet, without its imports, its blank lines and the one that says who runs it."""

MODELS = {
    "LangGraph": "",
    "AutoGen": "from cast.autogen import Model; model = Model()",
    "CrewAI": "from cast.crewai import Model; model = Model(model='scripted')",
    "OpenAI Agents SDK": "from cast.openai_agents import Model; model = Model()",
    "Pydantic AI": "from cast.pydantic_ai import MODEL as model",
    "Google ADK": "from cast.google_adk import Model; model = Model()",
    "Microsoft Agent Framework": "from cast.agent_framework import Model; model = Model()",
    "LlamaIndex workflows": "",
    "smolagents": "from cast.smolagents import Scripted; model = Scripted(model_id='scripted')",
    "A2A": "from cast.a2a import Act, said_to, started; url = started(Act({}))",
}
"""Where the page says `model`: scripted to hand on what it is told to, and else to be done with it."""
CALLED = {"A2A": "import asyncio; print(asyncio.run(said_to(Boss())))"}
"""What the page leaves to somebody else: an executor does nothing until its server is called."""

SCRIPT = """
from cast import brain

def decide(task, heard):
    task = task.strip().partition("\\n")[0]
    if heard:
        return brain.Say(heard[-1])
    if task.startswith("Hand this on: "):
        said = task.removeprefix("Hand this on: ")
        return brain.Call("hand_off_to_planner", {"task": said, "context_json": ""})
    return brain.Say(f"done: {task}")

brain.decide = decide
"""


def snippets(name: str) -> list[str]:
    text = next(
        found["text"] for found in SECTION.finditer(PAGE.read_text()) if found["name"] == name
    )
    return [block["code"] for block in BLOCK.finditer(text)]


def lines(snippet: str) -> int:
    return sum(LINE.match(line) is not None for line in snippet.splitlines())


def test_every_framework_has_its_section() -> None:
    sections = {found["name"] for found in SECTION.finditer(PAGE.read_text())}
    assert sections - MODELS.keys() == {"What travels along", "Questions", "OpenClaw and Clawdbot"}


@pytest.mark.parametrize("name", MODELS)
async def test_what_the_page_serves_takes_what_the_page_hands_off(relay: Relay, name: str) -> None:
    serving, handing = snippets(name)
    assert max(lines(serving), lines(handing)) <= LINES_MAX
    prelude = f"{SCRIPT}\n{MODELS[name]}\n"
    ends = [line for line in serving.splitlines() if line.endswith(".run()")]
    assert len(ends) == 1, "the last line of the first snippet works until it is stopped"
    stem = re.sub(r"\W", "_", name)
    scripts = {
        f"{stem}_serves": prelude + serving,
        f"{stem}_hands_off": prelude
        + serving.replace(ends[0], "")
        + handing
        + CALLED.get(name, ""),
    }
    for script, code in scripts.items():
        (relay.folder / f"{script}.py").write_text(code, encoding="utf-8")
    async with relay.connected("planner"):
        pass  # known from here on: over A2A, nobody else has an address
    server = relay.run(f"{stem}_serves", f"{stem}_serves.py")
    caller = relay.run(f"{stem}_hands_off", f"{stem}_hands_off.py")
    await asyncio.to_thread(caller.wait, RUN_SECONDS_MAX)
    server.terminate()
    await asyncio.to_thread(server.wait, RUN_SECONDS_MAX)
    printed = (relay.folder / f"{stem}_hands_off-0.log").read_text(encoding="utf-8")
    assert printed.splitlines()[-1:] == ["done: tides"], printed[-2_000:]
    served = (relay.folder / f"{stem}_serves-0.log").read_text(encoding="utf-8")
    assert server.returncode == 0, served[-2_000:]
