"""One command's dealings with a relay: who is asking, where, and what to do with the answer."""

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import msgspec

from nodrop.cli import screen
from nodrop.cli.handoffs.attempts import Attempts
from nodrop.client import settings
from nodrop.client.auth.credentials import CredentialsFile
from nodrop.client.auth.joined import joined
from nodrop.client.auth.tokens import OPERATOR
from nodrop.client.settings import Settings
from nodrop.model.errors import (
    AlreadyFinishedError,
    AttemptRequiredError,
    InvalidRequestError,
    NotFoundError,
    StaleAttemptError,
    UnauthenticatedError,
)

_HELD: Final = frozenset({"delivered", "accepted", "blocked"})


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What the flags say about the connection; None is left to the environment and the files."""

    url: str | None = None
    agent: str | None = None
    team: str | None = None
    token: str | None = None
    home: Path | None = None
    ca: Path | None = None


class Client(Protocol):
    """What a verb needs of the SDK."""

    agent: str | None
    """Who is asking; None where only the relay knows whose token it is."""

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any] | None = None,
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Ask the relay for one operation."""
        ...

    async def close(self) -> None:
        """Give up the connection."""
        ...


def now() -> int:
    """Return the time, in milliseconds."""
    return round(time.time() * 1_000)  # noqa: TID251  # a command's only clock, for the screen


class Session:
    """Opens a client when the first call is made; knows how the answer is to be shown."""

    def __init__(
        self,
        where: Where,
        *,
        as_json: bool = False,
        connect: Callable[[Settings], Awaitable[Client]] | None = None,
        now: Callable[[], int] = now,
    ) -> None:
        self._where = where
        self._connect = connect or _connect
        self._client: Client | None = None
        self.as_json = as_json
        self.now = now

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close()

    @cached_property
    def settings(self) -> Settings:
        """Where the relay is and who is asking."""
        where = self._where
        if where.home is not None:
            # The SDK, and whatever a verb starts, look there too.
            os.environ["NODROP_HOME"] = str(where.home)
        try:
            return settings.load(
                where.url,
                agent=where.agent,
                token=where.token,
                team=where.team,
                home=where.home,
                ca=where.ca,
            )
        except ValueError as error:
            raise InvalidRequestError(
                str(error), next_step="Correct the file, or move it away."
            ) from error

    @property
    def where(self) -> Where:
        """What the flags say."""
        return self._where

    @property
    def url(self) -> str | None:
        """Where the relay is, if a flag or the environment says so."""
        return self._where.url or os.environ.get("NODROP_URL") or None

    @property
    def named(self) -> bool:
        """Whether a flag, the environment, a file or a token says who is asking."""
        said = self._where.agent or os.environ.get("NODROP_AGENT")
        return bool(said) or self.settings.agent != OPERATOR

    def visit(self, url: str) -> None:
        """Ask the relay at this address. Before the first call."""
        self._where = msgspec.structs.replace(self._where, url=url)
        self.__dict__.pop("settings", None)

    def act_as(self, agent: str) -> None:
        """Be `agent` where no flag and no token says otherwise. Before the first call.

        A home with no operator is the agent that joined from it, for verbs of operators too: the
        relay knows its role.
        """
        if self.settings.joined and agent == OPERATOR:
            return
        if self._where.agent is None and self.settings.token is None:
            self._where = msgspec.structs.replace(self._where, agent=agent)
            del self.settings

    async def open(self) -> Client:
        """Return the client, connected by the first who asks for it."""
        if self._client is None:
            self._client = await self._connect(self.settings)
        return self._client

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any] | None = None,
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Ask the relay for one operation and return its answer."""
        try:
            client = await self.open()
            return await client.call(operation, fields or {}, handoff=handoff, name=name)
        except UnauthenticatedError as error:
            error.next_step = self._way_in() or error.next_step
            raise

    def _way_in(self) -> str | None:
        """Return what a person types who was not let in; None: a token was, and is not good."""
        chosen = self.settings
        if chosen.token is not None:
            return None
        agents = sorted({each.agent for each in joined(chosen.home)})
        if agents and chosen.agent not in agents:
            return f"Name the agent that you are here: --agent {'|'.join(agents)}"
        if CredentialsFile(chosen.home).read().operator is not None:
            return None
        return (
            f"{chosen.home} has no credentials for {chosen.address}: name the relay's --home, give a "
            "--token (NODROP_TOKEN), or join: nodrop join INVITATION"
        )

    async def handoff(self, ref: str) -> dict[str, Any]:
        """Return the handoff that `ref` names, as it is now."""
        return (await self.call("get_handoff", handoff=ref))["handoff"]

    async def about_delivery(
        self,
        operation: str,
        ref: str,
        fields: Mapping[str, Any],
        *,
        attempt: int | None,
        direct: bool = False,
    ) -> dict[str, Any]:
        """Carry out a recipient's command, for the delivery it last got.

        Args:
            operation: ack, update, complete and so on.
            ref: the handoff.
            fields: what the command says.
            attempt: the delivery, if the caller names it.
            direct: whether something merely offered may be acted on without taking it first.
        """
        handoff = await self.handoff(ref)
        attempts = self.attempts(handoff)
        if attempt is None:
            attempt = self._given_attempt(handoff)
        if attempt is None and not (direct and handoff["state"] == "offered"):
            attempt = attempts.of(handoff["id"]) or await self._current_attempt(handoff)
        sent = {**fields, **({} if attempt is None else {"attempt": attempt})}
        try:
            answer = await self.call(operation, sent, handoff=handoff["id"])
        except (StaleAttemptError, AlreadyFinishedError):
            attempts.forget(handoff["id"])
            raise
        attempts.remember(answer["handoff"])
        return answer

    def _given_attempt(self, handoff: Mapping[str, Any]) -> int | None:
        """Return the attempt that `nodrop work` told the command we are part of."""
        attempt = os.environ.get("NODROP_ATTEMPT", "")
        mine = os.environ.get("NODROP_HANDOFF_ID") == handoff["id"] and attempt.isdecimal()
        return int(attempt) if mine else None

    async def _current_attempt(self, handoff: Mapping[str, Any]) -> int | None:
        """Return the attempt that a turn-based caller who remembers none must mean."""
        if handoff["to"] != self.identity:
            return None
        if handoff["state"] == "offered":
            raise AttemptRequiredError(
                f"{handoff['ref']} is in the inbox of {handoff['to']}, and nobody has it",
                next_step=f"Say that you have it: nodrop ack {handoff['ref']}",
            )
        if handoff["state"] not in _HELD:
            return None
        if await self._is_connected(handoff["to"]):
            raise AttemptRequiredError(
                f"a process of {handoff['to']} is connected and may hold attempt"
                f" {handoff['attempt']}",
                next_step="If it is yours to act on, name it with --attempt.",
            )
        return handoff["attempt"]

    async def _is_connected(self, agent: str) -> bool:
        try:
            return (await self.call("get_agent", name=agent))["agent"]["connected"]
        except NotFoundError:
            return False

    @property
    def identity(self) -> str | None:
        """Who is asking; None before the first call with nothing but a token."""
        return self.settings.agent or (self._client.agent if self._client else None)

    def attempts(self, handoff: Mapping[str, Any]) -> Attempts:
        """Return what this agent remembers of its deliveries."""
        return Attempts(self.settings.home, self.identity or handoff["to"])

    def show(self, answer: Mapping[str, Any], picture: Callable[[], None]) -> None:
        """Print the relay's answer as it came, or a picture of it."""
        if self.as_json:
            screen.document(answer)
        else:
            picture()


async def _connect(chosen: Settings) -> Client:
    # An address may be a file, and `nodrop` itself says how one is opened.
    from nodrop.client.transports.connecting import open_client  # noqa: PLC0415  # not needed for `--help`

    return await open_client(
        chosen.address,
        agent=chosen.agent,
        token=chosen.token,
        team=chosen.team,
        ca=chosen.ca,
        # One question, one answer; but only a channel tells whose a token is.
        transport="http" if chosen.agent else "websocket",
    )
