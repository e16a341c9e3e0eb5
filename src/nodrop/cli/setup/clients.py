"""What each coding agent reads: its MCP servers, its instructions, its hooks."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from nodrop.cli.setup.edits import Block, Edit, Entry, JsonFile, OwnFile
from nodrop.servers.http.texts import text

SERVER: Final = "nodrop"
DOORBELL: Final = " inbox --brief"
"""What a hook of ours is known by."""
_DOORBELL_SECONDS_MAX: Final = 5
_STARTUP_SECONDS_MAX: Final = 30
_TOOL_SECONDS_MAX: Final = 60
_WHERE: Final = ("<!-- nodrop:begin (nodrop setup) -->", "<!-- nodrop:end -->")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Whose configuration it is, and how it reaches us."""

    agent: str
    named: bool
    """Somebody chose the name; else it comes from the folder."""
    command: Sequence[str]
    """What runs `nodrop`, its first word an absolute path."""
    options: Sequence[str]
    """Where the relay is, if that is not where every command looks."""
    folder: Path
    user_home: Path
    environment: Mapping[str, str] = os.environ

    @property
    def mcp(self) -> list[str]:
        """The command that serves the tools to this agent."""
        return [*self.command, "mcp", "--agent", self.agent, *self.options]

    def server(self, client: str) -> list[str]:
        """Return the command that is written for a client."""
        if client == "codex" and not self.named:
            # The same lines serve every folder, and the folder makes the name.
            return [*self.command, "mcp", "--client", "codex", *self.options]
        return self.mcp

    def doorbell(self, *more: str) -> str:
        """Return the command that a hook runs: whatever becomes of it, the host goes on."""
        words = [*self.command, *DOORBELL.split(), "--agent", self.agent, *self.options, *more]
        return f"{shlex.join(words)} 2>/dev/null || true"


def claude(place: Place) -> list[Edit]:
    """Claude Code: a project's server, a skill, and hooks at the start and at every prompt."""
    folder = place.folder / ".claude"
    return [
        JsonFile(path=place.folder / ".mcp.json", entries=(_server(place, "mcpServers"),)),
        JsonFile(path=folder / "settings.json", entries=_bells(place)),
        OwnFile(path=folder / "skills" / SERVER / "SKILL.md", content=text("skill.md")),
    ]


def codex(place: Place) -> list[Edit]:
    """Codex: its one configuration for every folder; the folder's AGENTS.md, and hooks in it.

    The hooks are the folder's own, because they name the agent. Codex asks before it trusts them.
    """
    home = Path(place.environment.get("CODEX_HOME") or place.user_home / ".codex")
    command, *arguments = place.server("codex")
    table = {
        "command": command,
        "args": arguments,
        "startup_timeout_sec": _STARTUP_SECONDS_MAX,
        "tool_timeout_sec": _TOOL_SECONDS_MAX,
    }
    lines = [f"[mcp_servers.{SERVER}]"]
    # Every string of JSON is one of TOML.
    lines += [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in table.items()]
    return [
        Block(
            path=home / "config.toml",
            content="\n".join(lines),
            begin="# nodrop:begin (nodrop setup)",
            end="# nodrop:end",
        ),
        _snippet(place.folder / "AGENTS.md"),
        JsonFile(path=place.folder / ".codex" / "hooks.json", entries=_bells(place)),
    ]


def cursor(place: Place) -> list[Edit]:
    """Cursor: a project's server, a rule that always applies, and a hook at the start.

    A hook at every prompt could only stop the prompt, not add to it.
    """
    folder = place.folder / ".cursor"
    ring = {"command": place.doorbell("--json")}
    rule = "---\ndescription: Work with other agents through Nodrop\nalwaysApply: true\n---\n"
    return [
        JsonFile(path=folder / "mcp.json", entries=(_server(place, "mcpServers"),)),
        OwnFile(path=folder / "rules" / f"{SERVER}.mdc", content=f"{rule}\n{_lesson()}"),
        JsonFile(
            path=folder / "hooks.json",
            entries=(
                Entry(keys=("version",), value=1, frame=True),
                Entry(keys=("hooks", "sessionStart"), value=ring, known_by=DOORBELL),
            ),
        ),
    ]


def openclaw(place: Place) -> list[Edit]:
    """OpenClaw: its gateway's server, and a skill that names the tools, which it hides otherwise."""
    home = Path(place.environment.get("OPENCLAW_STATE_DIR") or place.user_home / ".openclaw")
    return [
        JsonFile(path=home / "openclaw.json", entries=(_server(place, "mcp", "servers"),)),
        OwnFile(path=home / "skills" / SERVER / "SKILL.md", content=text("skill.md")),
    ]


CLIENTS: Final[dict[str, Callable[[Place], list[Edit]]]] = {
    "claude": claude,
    "codex": codex,
    "cursor": cursor,
    "openclaw": openclaw,
}


def server_in(path: Path) -> list[str] | None:
    """Return the command of our MCP server in a client's file; None: the file has none.

    Raises:
        ValueError: the file is damaged.
    """
    decode = _DECODERS.get(path.suffix)
    if decode is None or not path.exists():
        return None
    document = decode(path.read_bytes())
    for keys in _SERVERS:
        found = document
        for key in (*keys, SERVER):
            found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
        if found is not None:
            server = msgspec.convert(found, _Server)
            return [server.command, *server.args]
    return None


class _Server(msgspec.Struct, frozen=True):
    command: str
    args: tuple[str, ...] = ()


_DECODERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    ".json": msgspec.json.decode,
    ".toml": msgspec.toml.decode,
}
_SERVERS: Final = (("mcpServers",), ("mcp_servers",), ("mcp", "servers"))
"""Where clients keep their MCP servers."""


def _server(place: Place, *keys: str) -> Entry:
    command, *arguments = place.mcp
    value: dict[str, Any] = {"command": command, "args": arguments}
    return Entry(keys=(*keys, SERVER), value=value)


def _bells(place: Place) -> tuple[Entry, ...]:
    """Return hooks at the start of a session and at every prompt, as Claude Code and Codex read them."""
    ring = {"type": "command", "command": place.doorbell(), "timeout": _DOORBELL_SECONDS_MAX}
    return tuple(
        Entry(keys=("hooks", event), value={"hooks": [ring]}, known_by=DOORBELL)
        for event in ("SessionStart", "UserPromptSubmit")
    )


def _snippet(path: Path) -> Block:
    begin, end = _WHERE
    return Block(path=path, content=_lesson(), begin=begin, end=end)


def _lesson() -> str:
    """Return the skill without its head, which only skill files have."""
    _, _, lesson = text("skill.md").split("---\n", 2)
    return lesson.strip() + "\n"
