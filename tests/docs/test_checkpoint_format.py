"""A checkpoint is signed as docs/protocol.md says: checked with nothing of ours but the relay."""

import base64
import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from nodrop import app
from nodrop.relay.relay import operator_of
from nodrop.servers.inprocess import InProcessTransport

VERIFY = Path(__file__).parents[2] / "examples" / "verify_log.py"


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def check(point: dict[str, Any]) -> None:
    at = round(datetime.fromisoformat(point["at"]).timestamp() * 1_000)
    stated = {"at": at, "head": point["head"], "size": point["size"], "team": point["team"]}
    signed = json.dumps(stated, separators=(",", ":"), sort_keys=True).encode()
    key = Ed25519PublicKey.from_public_bytes(unpadded(point["public_key"]))
    key.verify(unpadded(point["signature"]), signed)


async def test_a_checkpoint_and_the_log_before_it_can_be_checked_by_anybody(tmp_path: Path) -> None:
    async with app.open_relay(tmp_path / "nodrop.db", home=tmp_path, team="crew") as relay:
        me = InProcessTransport(relay, operator_of("crew"))
        await me.call("note_team", {"text": "something"})
        point = await me.call("checkpoints", {})
        entries = (await me.call("log", {}))["entries"]
    check(point)
    for field, wrong in (("size", 1_000), ("head", "0" * 64), ("team", "other")):
        with pytest.raises(InvalidSignature):
            check(point | {field: wrong})
    assert (entries[-1]["seq"], entries[-1]["hash"]) == (point["size"], point["head"])
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    assert "hold, " in verified(log, "crew")
    assert "does not hold" in verified(log, "other"), "the team's name is hashed with each entry"


def verified(log: Path, team: str) -> str:
    ran = subprocess.run(  # our own interpreter
        [sys.executable, str(VERIFY), str(log), team], capture_output=True, text=True, check=True
    )
    return ran.stdout
