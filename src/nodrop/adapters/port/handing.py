"""The other way round: code inside a framework hands work on, and gets back what became of it.

One `HandOff` says to whom and on what terms; adapters make it a tool, a node or a participant of
their framework. Inside of a handoff it goes over the worker's connection and carries its chain,
trace and what is left of its deadline; anywhere else it needs a connection of its own.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict, cast

import msgspec

from nodrop.adapters.port.current import Current, current
from nodrop.adapters.port.events import TASK, text
from nodrop.client.blocking import BlockingClient
from nodrop.client.client import Client
from nodrop.client.durations import Due, Duration, Wait
from nodrop.client.endings import Fail
from nodrop.client.handoff import Handoff
from nodrop.client.portal import Portal
from nodrop.client.shown import HandoffShown, outcome_of
from nodrop.client.tracing import current_traceparent
from nodrop.client.values import given, plain
from nodrop.model.errors import CallerError, ConflictError, NodropError
from nodrop.model.handoff import State

WAIT: Final = "10m"
"""How long a tool holds its agent for a result, where nobody says."""

Helper = Callable[[str], Any] | Callable[[str], Awaitable[Any]]
"""Answers the question of whoever was handed the work."""


class Handing(TypedDict, total=False):
    """On what terms work is handed on."""

    capability: str | None
    client: Client | BlockingClient | None
    """The connection to use outside of a handoff."""
    wait: Duration
    """How long to wait for the result; the work goes on after that."""
    deadline: Due | None
    attempts_max: int | None
    on_help: Helper | None
    """Who answers questions; where left out, whoever asked for the work that this is part of."""
    name: str | None
    """What the tool is called, or the agent among the framework's own."""
    description: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of it."""

    state: str
    """A state of the protocol, or `refused`: it was never stored."""
    handoff: str | None = None
    result: Any = None
    code: str | None = None
    reason: str | None = None

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self.state == State.COMPLETED.value

    @property
    def text(self) -> str:
        """What a model is told: the result, or how it stands, without pretending."""
        if self.done:
            return text(self.result)
        said = given(state=self.state, code=self.code, reason=self.reason, handoff=self.handoff)
        return json.dumps(said, ensure_ascii=False)


class HandOff:
    """A way to hand work to somebody."""

    def __init__(self, to: str | None = None, terms: Handing | None = None) -> None:
        terms = terms or {}
        self._to = to
        self._capability = terms.get("capability")
        self._wait = terms.get("wait", WAIT)
        self._deadline = terms.get("deadline")
        self._attempts_max = terms.get("attempts_max")
        self._on_help = terms.get("on_help")
        whom = to or self._capability
        if whom is None:
            raise ValueError("name a recipient, a capability, or both")
        self.whom = whom
        self.name = terms.get("name") or re.sub(r"\W", "_", f"hand_off_to_{whom}")
        # Some frameworks have an agent be called like a variable; the relay does not.
        self.participant = terms.get("name") or re.sub(r"\W|^(?=\d)", "_", whom)
        self.description = terms.get("description") or (
            f"Hand a task to the agent {whom} and wait for its result."
        )
        client = terms.get("client")
        if isinstance(client, BlockingClient):
            self._client: Client | None = client.inner
            self._portal: Portal | None = client.portal
        else:
            self._client = client
            self._portal = None if client is None else Portal(asyncio.get_running_loop())

    async def __call__(self, task: Any, context: Mapping[str, Any] | None = None) -> Answer:
        """Hand it over and wait, on whichever event loop the framework runs this."""
        here = current()
        portal = self._line(here)
        return await portal.awaited(self._handed(here, _payload(task, context)))

    def call_sync(self, task: Any, context: Mapping[str, Any] | None = None) -> Answer:
        """Hand it over and wait, from a thread."""
        here = current()
        return self._line(here).call(self._handed(here, _payload(task, context)))

    def function(self) -> Callable[[str, str], Awaitable[str]]:
        """Return it as a documented function with plain types, which most frameworks take as it is."""

        async def hand_off(task: str, context_json: str = "") -> str:
            return (await self(task, parsed(context_json))).text

        hand_off.__name__ = hand_off.__qualname__ = self.name
        hand_off.__doc__ = (
            f"{self.description}\n\nArgs:\n"
            "    task: What the other agent shall do, with all it needs to know.\n"
            "    context_json: Further fields of the payload, as a JSON object; empty for none."
        )
        return hand_off

    def _line(self, here: Current | None) -> Portal:
        """Return the event loop of the connection that this goes over."""
        portal = here.portal if here else self._portal
        if portal is None:
            raise Fail("there is no connection here: pass `client`", code="no_connection")
        return portal

    async def _handed(self, here: Current | None, payload: Any) -> Answer:
        own = given(
            capability=self._capability, title=_title(payload), attempts_max=self._attempts_max
        )
        client = here.task.client if here else self._client
        assert client is not None, "_line has found one of the two"
        try:
            if here is not None:
                handoff = await here.hand_on(self._to, payload, due=self._deadline, **own)
            else:
                own |= given(deadline=self._deadline, traceparent=current_traceparent())
                handoff = await client.hand_off(self._to, payload=payload, **own)
        except CallerError as error:
            return refused(error)
        return await self._followed(client, handoff, here)

    async def _followed(self, client: Client, handoff: Handoff, here: Current | None) -> Answer:
        """Wait for the end, and pass on questions that come up before it."""
        left = Wait(self._wait)
        while not handoff.finished:
            if left.over:
                return Answer(state=handoff.state, handoff=handoff.ref, code="wait_elapsed")
            fields = {"wait": left.piece(), "until": "blocked"}
            answer = await client.call("get_handoff", fields, handoff=handoff.id)
            handoff = Handoff(answer["handoff"], client)
            if handoff.state == State.BLOCKED.value:
                await self._help(client, handoff, left, here)
        outcome = outcome_of(handoff)
        await handoff.settle()
        return Answer(
            state=outcome.state,
            handoff=handoff.ref,
            result=outcome.result,
            code=outcome.code,
            reason=outcome.reason,
        )

    async def _help(
        self, client: Client, shown: HandoffShown, left: Wait, here: Current | None
    ) -> None:
        question = shown.question
        ours = question is not None and (question.kind, question.asked) == (
            "question",
            client.agent,
        )
        if question is None or not ours or (self._on_help is None and here is None):
            # Somebody else's to answer: wait until they have.
            fields = {"wait": left.piece(), "until": "unblocked"}
            await client.call("get_handoff", fields, handoff=shown.id)
            return
        words = question.question or ""
        if self._on_help is not None:
            said: Any = self._on_help(words)
            if inspect.isawaitable(said):
                said = await said
        else:
            assert here is not None, "one of the two was there"
            said = await here.ask(f"{shown.recipient} asks: {words}")
        try:
            fields = {"seq": question.seq, "answer": plain(said)}
            await client.call("answer", fields, handoff=shown.id)
        except ConflictError:
            return  # somebody else was faster, or it is over


def refused(error: NodropError) -> Answer:
    """Return the answer to what was never stored."""
    where = "; ".join(f"{problem.path}: {problem.message}" for problem in error.errors)
    reason = f"{error.detail} ({where})" if where else error.detail
    return Answer(state="refused", code=error.code, reason=reason)


def parsed(context_json: str | None) -> dict[str, Any] | None:
    """Return the object a model wrote; what is no object is kept as it was said."""
    if not context_json:
        return None
    try:
        context: Any = msgspec.json.decode(context_json)
    except msgspec.DecodeError:
        context = context_json
    return cast("dict[str, Any]", context) if isinstance(context, dict) else {"context": context}


def _payload(task: Any, context: Mapping[str, Any] | None) -> Any:
    return plain({TASK: task, **(context or {})})


def _title(payload: Any) -> str:
    line = text(payload[TASK]).strip().partition("\n")[0]
    return line[:80] or "a task"
