"""A relay that the system keeps running: what `nodrop up --service` writes for systemd and launchd."""

import os
import plistlib
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

UNIT: Final = "nodrop.service"
LABEL: Final = "dev.nodrop.relay"

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


class Manager(StrEnum):
    """What starts programs for a user, and starts them again when they crash."""

    SYSTEMD = "systemd"
    LAUNCHD = "launchd"

    @classmethod
    def of_this_system(cls) -> "Manager":
        """Return the one that this system has."""
        return cls.LAUNCHD if sys.platform == "darwin" else cls.SYSTEMD


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service file, and what to type once it is written."""

    path: Path
    content: str
    start: Sequence[str]
    """Commands that start it, now and at every login."""
    stay: Sequence[str] = ()
    """Commands that keep it running while the user is logged out."""

    def write(self) -> None:
        """Put the file in its place."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.content, encoding="utf-8")


def service(manager: Manager, options: Sequence[str], *, user_home: Path) -> Service:
    """Return the service that runs `nodrop up` with these options."""
    command = [sys.executable, "-m", "nodrop.cli", "up", *options]
    if manager is Manager.LAUNCHD:
        return _launchd(command, user_home)
    return Service(
        path=user_home / ".config" / "systemd" / "user" / UNIT,
        content=_TEMPLATE.format(command=" ".join(map(_quoted, command))),
        start=("systemctl --user daemon-reload", "systemctl --user enable --now nodrop"),
        stay=(f"loginctl enable-linger {os.environ.get('USER', '')}".rstrip(),),
    )


def _launchd(command: Sequence[str], user_home: Path) -> Service:
    path = user_home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    log = str(user_home / "Library" / "Logs" / "nodrop.log")
    job = {
        "Label": LABEL,
        "ProgramArguments": list(command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},  # `nodrop stop` ends it: that is no crash
        "ExitTimeOut": 30,
        "ProcessType": "Background",
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "Umask": 0o077,
    }
    content = plistlib.dumps(job, sort_keys=False).decode()
    return Service(
        path=path, content=content, start=(f'launchctl bootstrap gui/$(id -u) "{path}"',)
    )


def _quoted(word: str) -> str:
    """Return a word as systemd reads it: `%` and `$` mean something there, and so do spaces."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or " " in word else word
