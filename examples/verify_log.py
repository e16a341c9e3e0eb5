"""Check a log with nothing but the standard library: `nodrop log --json > log.jsonl`, then this.

Every entry holds the hash of the one before it. The hash of an entry is the SHA-256 of its canonical JSON
(keys sorted, no spaces) of these fields, the team's name among them, which no entry shows, and `at` in
milliseconds. A body is not in it, only `body_digest`: the SHA-256 of a salt and the body's canonical JSON.
Salt and body are shown to those who may read the body, and erased together.
"""

import base64
import hashlib
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

HASHED = (
    *("actor", "at", "body_digest", "command_id", "correlation_id", "data", "handoff_id"),
    *("prev_hash", "seq", "team", "type", "version"),
)
AS_SENT = {"agent.registered.v1"}  # manifests are kept byte for byte and shown as values


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def milliseconds(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1000)


def first_bad(team: str, entries: list[dict[str, Any]]) -> tuple[int, str] | None:
    """Return the first entry that does not hold, and why."""
    before = entries[0]["prev_hash"] if entries else ""
    for number, entry in enumerate(entries, entries[0]["seq"] if entries else 1):
        if entry["seq"] != number:
            return number, "it is missing"
        if entry["prev_hash"] != before:
            return number, "it does not follow the entry before it"
        hashed = {name: entry.get(name) for name in HASHED}
        hashed |= {"team": team, "at": milliseconds(entry["at"])}
        before = hashlib.sha256(canonical(hashed)).hexdigest()
        if before != entry["hash"]:
            return number, "its hash is not the hash of what it says"
        if entry["body"] is not None and entry["type"] not in AS_SENT:
            salt = base64.urlsafe_b64decode(entry["body_salt"] + "==")
            digest = hashlib.sha256(salt + canonical(entry["body"])).hexdigest()
            if digest != entry["body_digest"]:
                return number, "its body is not the one it was written with"
    return None


def main(path: str, team: str = "default") -> str:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    bad = first_bad(team, entries)
    if bad is not None:
        return f"entry {bad[0]} does not hold: {bad[1]}"
    bodies = sum(entry["body"] is not None for entry in entries)
    return f"{len(entries)} entries hold, {bodies} with their bodies"


if __name__ == "__main__":
    print(main(*sys.argv[1:]) if sys.argv[1:] else "python verify_log.py LOG.jsonl [TEAM]")
