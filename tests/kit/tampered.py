"""Changing what a database file says, behind the back of the store that wrote it."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import rfc8785

Line = dict[str, Any]
Change = Callable[[Line], Line | None]
"""Returns what an entry is to say; None: it is to be gone."""

HASH_BYTES = 32


def entries(connection: Any, change: Change) -> None:
    """Change the entries of the log; their hashes stay what they were."""
    rows = list(connection.execute("select team, last_seq, entries, hashes from journal"))
    for team, last_seq, lines, hashes in rows:
        kept: list[tuple[bytes, bytes]] = []
        for number, line in enumerate(lines.split(b"\n")):
            changed = change(json.loads(line))
            if changed is not None:
                own = hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES]
                kept.append((json.dumps(changed).encode(), own))
        if not kept:
            connection.execute(
                "delete from journal where team = ? and last_seq = ?", (team, last_seq)
            )
            continue
        connection.execute(
            "update journal set entries = ?, hashes = ? where team = ? and last_seq = ?",
            (
                b"\n".join(line for line, _ in kept),
                b"".join(own for _, own in kept),
                team,
                last_seq,
            ),
        )


def bodies(connection: Any, change: Callable[[int, bytes], bytes | None]) -> None:
    """Change bodies, by the places of their entries; None: it is to be gone."""
    rows = list(connection.execute("select team, last_seq, bodies from journal"))
    for team, last_seq, packed in rows:
        found: list[Any] = msgspec.msgpack.decode(packed) if packed else []
        left = [
            (seq, salt, changed)
            for seq, salt, body in found
            if (changed := change(seq, body)) is not None
        ]
        connection.execute(
            "update journal set bodies = ? where team = ? and last_seq = ?",
            (msgspec.msgpack.encode(left) if left else b"", team, last_seq),
        )


def rehashed(connection: Any) -> None:
    """Give every entry the hash of what it says now."""
    before = bytes(HASH_BYTES)
    rows = list(connection.execute("select team, last_seq, entries from journal order by last_seq"))
    for team, last_seq, lines in rows:
        first, hashes = before, b""
        for line in lines.split(b"\n"):
            entry = json.loads(line) | {"prev_hash": before.hex()}
            before = hashlib.sha256(rfc8785.dumps(entry)).digest()
            hashes += before
        connection.execute(
            "update journal set prev_hash = ?, hashes = ? where team = ? and last_seq = ?",
            (first, hashes, team, last_seq),
        )
