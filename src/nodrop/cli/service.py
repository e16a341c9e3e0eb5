"""A relay that the system keeps running: the systemd user unit that `nodrop up --service` writes."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

UNIT: Final = "nodrop.service"

_TEMPLATE: Final = """\
# Made by `nodrop up --service`.
[Unit]
Description=Nodrop relay: handoffs between agents
After=network.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=1
# A flag that cannot be read does not get better by trying again.
RestartPreventExitStatus=2
# The relay answers what it has and lets go of its database.
KillSignal=SIGTERM
TimeoutStopSec=30
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""


def unit(options: Sequence[str]) -> str:
    """Return the unit that runs `nodrop up` with these options."""
    command = [sys.executable, "-m", "nodrop.cli", "up", *options]
    return _TEMPLATE.format(command=" ".join(map(_quoted, command)))


def place(*, user_home: Path) -> Path:
    """Return where systemd looks for a user's own units."""
    return user_home / ".config" / "systemd" / "user" / UNIT


def write(path: Path, content: str) -> None:
    """Put the unit in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def _quoted(word: str) -> str:
    """Return a word as systemd reads it: `%` and `$` mean something there, and so do spaces."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or " " in word else word
