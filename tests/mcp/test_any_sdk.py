"""Clients on either version of the MCP SDK, each a process of its own, with the relay on ours."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from nodrop.client.auth.credentials import CredentialsFile
from nodrop_proof.chaos.relay_process import RelayProcess

STORY = Path(__file__).with_name("story_of_any_sdk.py")
MCP_1 = Path(sys.prefix) / "mcp-1"
SECONDS_MAX = 100


def told(home: Path, sdk: str, *arguments: str) -> str:
    """Return the last line of the story as a client on `sdk` tells it."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NODROP_") and name != "PYTHONPATH"
    }
    environment = inherited | {"NODROP_HOME": str(home)}
    if sdk == "1":
        assert MCP_1.is_dir(), "the SDK of before is not here: `make lint` puts it there"
        environment["PYTHONPATH"] = str(MCP_1)
    done = subprocess.run(
        [sys.executable, str(STORY), *arguments],
        env=environment, cwd=home, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


async def tokens(relay: RelayProcess, *names: str) -> list[str]:
    """Return a token for each, made by the operator."""
    operator = CredentialsFile(relay.home).read().operator
    headers = {"authorization": f"Bearer {operator}"}
    async with httpx.AsyncClient(base_url=relay.url, headers=headers, timeout=20) as http:
        made = [await http.post("/v1/tokens", json={"agent": name}) for name in names]
    return [answer.json()["token"] for answer in made]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("sdk", ["1", "2"])
async def test_a_client_on_either_sdk_hands_work_over_and_back(tmp_path: Path, sdk: str) -> None:
    async with RelayProcess(tmp_path) as relay:
        over_stdio = told(tmp_path, sdk, sys.executable, "-m", "nodrop.cli")
        assert over_stdio.startswith(f"told with {sdk}.")
        made = await tokens(relay, "planner", "coder")
        over_http = told(tmp_path, sdk, "--url", relay.url, *made)
        assert over_http.startswith(f"told with {sdk}.")
