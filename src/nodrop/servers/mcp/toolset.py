"""All tools of one agent, behind one call: arguments checked, time bounded, refusals put in words.

Knows nothing of MCP: a server of any kind may hand it names and arguments.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from nodrop.model.errors import NodropError, NotFoundError, UnreachableError
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol.decoding import decode_strict, encode_strict
from nodrop.servers.mcp import looking, receiving, requesting, talking, tools, wording
from nodrop.servers.mcp.desk import Desk
from nodrop.servers.mcp.way import Memory, Way

HAND_OFF_SECONDS_MAX: Final = 3.5
"""Some clients give up after five seconds, and their model then hands off again."""
ANSWER_SECONDS_MAX: Final = 20.0

_DOES: Final[dict[str, Callable[[Desk, Any], Awaitable[str]]]] = {
    "join": looking.join,
    "find_agents": looking.find_agents,
    "hand_off": requesting.hand_off,
    "inbox": looking.inbox,
    "ack": receiving.ack,
    "update": receiving.update,
    "answer": requesting.answer,
    "track": looking.track,
    "wait": requesting.wait,
    "say": talking.say,
    "read_log": looking.read_log,
    "write_log": looking.write_log,
}
_REPEAT: Final = "Repeat the same call in a moment; is the relay up? `nodrop up` starts one."
_REPEAT_OFFER: Final = (
    "Whether it was stored is not known. Call hand_off again with exactly the same arguments:"
    " if it was, the relay knows it and stores nothing twice. No answer again: the relay is down,"
    " and `nodrop up` starts one."
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool says."""

    text: str
    refused: bool = False


class Toolset:
    """The tools of one agent."""

    def __init__(self, way: Way, memory: Memory, *, limits: Limits = DEFAULT) -> None:
        self._desk = Desk(way, memory)
        self._limits = limits

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Use a tool.

        Raises:
            NotFoundError: there is no such tool.
        """
        tool = tools.TOOLS.get(name)
        if tool is None:
            raise NotFoundError(
                f"no tool is called {name[: self._limits.name_chars_max]!r}",
                next_step=f"Use one of {', '.join(tools.TOOLS)}.",
            )
        try:
            said = decode_strict(encode_strict(arguments), tool.arguments, self._limits)
            return Answer(text=await self._within(_seconds_max(said), name, said))
        except NodropError as error:
            return Answer(text=wording.refusal(error), refused=True)

    async def _within(self, seconds: float, name: str, said: tools.Arguments) -> str:
        try:
            async with asyncio.timeout(seconds):
                return await _DOES[name](self._desk, said)
        except TimeoutError:
            again = _REPEAT_OFFER if name == "hand_off" else _REPEAT
            raise UnreachableError(f"no answer within {seconds:g} s", next_step=again) from None


def _seconds_max(said: tools.Arguments) -> float:
    match said:
        case tools.HandOff():
            return HAND_OFF_SECONDS_MAX
        case tools.Wait():
            return said.patience_seconds + tools.LATE_SECONDS
        case _:
            return ANSWER_SECONDS_MAX
