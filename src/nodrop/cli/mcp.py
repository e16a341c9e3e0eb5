"""`nodrop mcp`: the tools for a coding agent, over its standard input and output.

The agent is bound to the process: named by `--agent` or its environment, or after the folder it
works in. No tool says who is asking. The relay is found as `nodrop send` finds it, when the first
tool is used: an agent may well be started before its relay.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from nodrop.cli.handoffs.attempts import Attempts
from nodrop.cli.session import Session
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.model.names import is_agent_id
from nodrop.protocol import extras
from nodrop.servers.mcp.toolset import Answer, Toolset
from nodrop.servers.mcp.way import ShortMemory

CLIENT: Final = "agent"
_NOT_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_CHARS_MAX: Final = 64
_MARK_CHARS: Final = 8


async def mcp(
    session: Session,
    client: Annotated[
        str, typer.Option(help="Without --agent, the name is this and the folder: CLIENT-FOLDER.")
    ] = CLIENT,
) -> None:
    """Serve a coding agent its tools over MCP (stdio). `nodrop setup` writes the line that runs it."""
    try:
        from nodrop.servers.mcp.lines import serve  # noqa: PLC0415  # needs the extra
        from nodrop.servers.mcp.server import Context, server  # noqa: PLC0415  # same
    except ImportError as error:
        raise extras.missing_here(f"MCP ({error})", extras.RELAY) from error
    if not session.named:  # `me` is a person: an assistant is not that by default
        session.act_as(folder_name(client))
    check_name(session.settings.agent)
    toolset = Toolset(_Line(session), _Memories(session))

    async def use(_: Context, name: str, arguments: Mapping[str, Any]) -> Answer:
        return await toolset.call(name, arguments)

    await serve(server(use))


def check_name(agent: str | None) -> None:
    """Refuse a name that no relay takes, before a client is told to go by it.

    Raises:
        InvalidRequestError: nobody can be called that.
    """
    if agent is not None and not is_agent_id(agent):
        problem = Problem(path="agent", message="expected letters, digits, _ . - (at most 64)")
        raise InvalidRequestError(
            "no agent can have this name",
            next_step="Choose another: --agent NAME",
            errors=(problem,),
        )


def folder_name(client: str, folder: Path | None = None) -> str:
    """Return the name of an agent that works in a folder: the same one every time."""
    place = (folder or Path.cwd()).resolve()
    own = _NOT_OF_A_NAME.sub("-", place.name or "root").strip("-.")
    if not own:  # a name in another script; without a mark of its own, all such folders were one
        own = hashlib.sha256(place.name.encode()).hexdigest()[:_MARK_CHARS]
    return _NOT_OF_A_NAME.sub("-", f"{client}-{own}").strip("-.")[:_NAME_CHARS_MAX]


class _Line:
    """The session as the tools know it: connected once, however many are used at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opening = asyncio.Lock()

    @property
    def agent(self) -> str | None:
        return self._session.identity

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        async with self._opening:
            await self._session.open()
        return await self._session.call(operation, fields, handoff=handoff, name=name)


class _Memories:
    """What this process was given, then what any command of this agent was: the file outlives it."""

    def __init__(self, session: Session) -> None:
        self._own = ShortMemory()
        self._session = session

    @property
    def _kept(self) -> Attempts:
        return Attempts(self._session.settings.home, self._session.identity or "")

    def of(self, handoff_id: str) -> int | None:
        return self._own.of(handoff_id) or self._kept.of(handoff_id)

    def remember(self, handoff: Mapping[str, Any]) -> None:
        self._own.remember(handoff)
        self._kept.remember(handoff)

    def forget(self, handoff_id: str) -> None:
        self._own.forget(handoff_id)
        self._kept.forget(handoff_id)
