"""Shell lines and output in the README."""

import json
import re
from pathlib import Path
from typing import Any

import nodrop
from nodrop import app

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


async def test_the_agent_of_the_readme_takes_what_its_curl_sends(tmp_path: Path) -> None:
    [sent] = re.findall(r"-d '(\{.*\})'", README)
    # The agent of the ten lines, as it describes itself.
    [block] = re.findall(r"```python\n(.*?)async def hand_off", README, re.DOTALL)
    names: dict[str, Any] = {"__name__": "readme"}
    exec(block, names)  # noqa: S102  # the README's own words
    agent = names["agent"]
    assert isinstance(agent, nodrop.Agent)
    async with app.open_relay(":memory:", home=tmp_path) as relay, app.listening(relay) as url:
        await relay.ensure_token("default", agent="me", role="operator", secret="nd_1")
        async with nodrop.connect(url, token="nd_1", home=tmp_path) as me:
            await me.call("register", {"manifest": agent.manifest()}, name=agent.name)
            offered = await me.call("offer", json.loads(sent))
    assert offered["handoff"]["state"] == "offered"
