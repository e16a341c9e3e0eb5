"""A handoff relay for AI agents: pass work on without dropping it.

    async with nodrop.connect(agent="inbox_monitor") as me:
        handoff = await me.hand_off("code_agent", title="Login button not working on mobile")
        timeline = await handoff.result(wait="4h")

`connect` is for requesters, `Agent` for workers; `connect_sync` is for programs without an event
loop. Importing this package loads no relay and no network library.
"""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodrop.client.agent import Agent, serve
from nodrop.client.blocking import BlockingClient, BlockingHandoff
from nodrop.client.client import Client
from nodrop.client.cursor import Cursor
from nodrop.client.dead_letter import DeadLetter
from nodrop.client.endings import Fail, HandoffFailed, Reject, WaitElapsed
from nodrop.client.handoff import Handoff
from nodrop.client.inbox import Item
from nodrop.client.settings import Address
from nodrop.client.shown import AgentShown, Contract, Outcome, Receipt
from nodrop.client.transports.connecting import connect, connect_sync, provide_embedded
from nodrop.client.transports.transport import Transport
from nodrop.client.working.blocking_task import BlockingTask
from nodrop.client.working.task import Task
from nodrop.model.errors import (
    AlreadyFinishedError,
    CallerError,
    ConflictError,
    ContractMismatchError,
    CursorUnknownError,
    ForbiddenError,
    IdempotencyConflictError,
    InvalidRequestError,
    NodropError,
    NoMatchError,
    NotFoundError,
    PayloadInvalidError,
    ResultInvalidError,
    SignatureInvalidError,
    SignatureRequiredError,
    StaleAttemptError,
    StoreInUseError,
    TooLargeError,
    UnansweredError,
    UnauthenticatedError,
    UnavailableError,
    UnreachableError,
)

__all__ = [
    "Agent",
    "AgentShown",
    "AlreadyFinishedError",
    "BlockingClient",
    "BlockingHandoff",
    "BlockingTask",
    "CallerError",
    "Client",
    "ConflictError",
    "Contract",
    "ContractMismatchError",
    "Cursor",
    "CursorUnknownError",
    "DeadLetter",
    "Fail",
    "ForbiddenError",
    "Handoff",
    "HandoffFailed",
    "IdempotencyConflictError",
    "InvalidRequestError",
    "Item",
    "NoMatchError",
    "NodropError",
    "NotFoundError",
    "Outcome",
    "PayloadInvalidError",
    "Receipt",
    "Reject",
    "ResultInvalidError",
    "SignatureInvalidError",
    "SignatureRequiredError",
    "StaleAttemptError",
    "StoreInUseError",
    "Task",
    "TooLargeError",
    "Transport",
    "UnansweredError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnreachableError",
    "WaitElapsed",
    "__version__",
    "connect",
    "connect_sync",
    "join",
    "serve",
]

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  # slow, and rarely asked for

        return version("nodrop")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


async def _open_embedded(path: str, *, agent: str, team: str | None, home: Path) -> Transport:
    from nodrop.app import TEAM, open_embedded  # noqa: PLC0415  # a relay is loaded when opened

    return await open_embedded(path, agent=agent, team=team or TEAM, home=home)


async def join(
    invitation: str,
    *,
    agent: str | None = None,
    address: Address | None = None,
    home: str | PathLike[str] | None = None,
) -> dict[str, Any]:
    """Join a team with a key of one's own, made and kept here; see `docs/identity.md`.

    Args:
        invitation: what `nodrop invite` printed.
        agent: the name to join under, where the invitation does not say.
        address: `http(s)://host:port` of the relay.
        home: where the key is kept, if not in `NODROP_HOME`.

    Raises:
        NodropError: the relay refused, or cannot be reached.
    """
    from nodrop.client.auth import joining  # noqa: PLC0415  # cryptography is loaded by who has a key

    return await joining.join(invitation, agent=agent, address=address, home=home)


provide_embedded(_open_embedded)
