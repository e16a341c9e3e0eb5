"""Clawdbot and OpenClaw: what `sessions_send` and `sessions_spawn` mean, kept by a relay.

Their tools pass work between sessions of one gateway, in memory. These have the same parameters and
the same statuses, but every status is a rung that was reached: `accepted` is stored on disk, and a
`timeout` says how far the work has come and that it goes on. A session key is an agent of the team.
OpenClaw itself joins over A2A (`nodrop.adapters.a2a`) or MCP; nothing of it is loaded here.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from nodrop.adapters.port.current import current
from nodrop.adapters.port.events import TASK
from nodrop.client.client import Client
from nodrop.client.durations import Due
from nodrop.client.endings import WaitElapsed
from nodrop.client.handoff import Handoff
from nodrop.client.tracing import current_traceparent
from nodrop.client.values import given
from nodrop.model.errors import ForbiddenError, NodropError

TIMEOUT_SECONDS: Final = 30
"""How long `sessions_send` waits where nobody says, as in OpenClaw."""

Status = Literal["accepted", "ok", "timeout", "error", "forbidden"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What is known about a message or a run. `run_id` is the handoff."""

    status: Status
    run_id: str | None = None
    session_key: str | None = None
    rung: str | None = None
    """How far it has come: `stored`, `delivered`, `acknowledged`, `updated`, `finished`…"""
    state: str | None = None
    reply: Any = None
    error: str | None = None
    code: str | None = None
    sent_before_error: bool = False
    """It was stored all the same, and is being worked on or has ended."""

    def as_tool_result(self) -> dict[str, Any]:
        """Return it in the words of the tools."""
        said = given(
            runId=self.run_id,
            sessionKey=self.session_key,
            rung=self.rung,
            reply=self.reply,
            error=self.error,
            code=self.code,
            sentBeforeError=self.sent_before_error or None,
        )
        return {"status": self.status, **said}


class Sessions:
    """Sends to other sessions, and starts runs, over one connection.

    Inside of a handoff it is its worker that sends, as a part of it, whoever's the connection is.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(
        self,
        message: str,
        *,
        session_key: str,
        timeout_seconds: float = TIMEOUT_SECONDS,
        label: str | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Send a message and wait for the reply; 0 seconds: only until it is stored.

        The wait is the sender's alone: when it is over, the work goes on and `wait` waits again.
        """
        sent = await self._offered(session_key, message, label, None, idempotency_key)
        if isinstance(sent, Sent):
            return sent
        if timeout_seconds <= 0:
            return _accepted(sent)
        return await self._replied(sent, timeout_seconds)

    async def spawn(
        self,
        task: str,
        *,
        agent_id: str,
        label: str | None = None,
        run_timeout_seconds: float | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Start a run and return at once: accepted means stored. `wait` has the result later."""
        due = run_timeout_seconds or None
        sent = await self._offered(agent_id, task, label, due, idempotency_key)
        return sent if isinstance(sent, Sent) else _accepted(sent)

    async def wait(self, run_id: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Sent:
        """Wait for the reply to something sent or started before, in this process or another."""
        try:
            here = current()
            handoff = await (here.task.client if here else self._client).handoff(run_id)
        except NodropError as error:
            return _refused(error, None)
        return await self._replied(handoff, timeout_seconds)

    async def _offered(
        self, to: str, task: str, label: str | None, due: Due | None, key: str | None
    ) -> Handoff | Sent:
        here, payload = current(), {TASK: task}
        own: dict[str, Any] = given(title=label, idempotency_key=key)
        try:
            if here is not None:
                return await here.hand_on(to, payload, due=due, **own)
            own |= given(deadline=due, traceparent=current_traceparent())
            return await self._client.hand_off(to, payload=payload, **own)
        except NodropError as error:
            return _refused(error, to)

    async def _replied(self, handoff: Handoff, timeout_seconds: float) -> Sent:
        known: dict[str, Any] = {"run_id": handoff.id, "session_key": handoff.recipient}
        try:
            outcome = await handoff.outcome(wait=timeout_seconds)
        except WaitElapsed as elapsed:
            return Sent(
                status="timeout",
                rung=elapsed.rung,
                state=elapsed.handoff.state,
                error=f"no reply yet: it is {elapsed.handoff.state} and goes on",
                code="wait_elapsed",
                sent_before_error=True,
                **known,
            )
        except NodropError as error:
            known |= {"error": error.detail, "code": error.code}
            return Sent(status="error", sent_before_error=True, **known)
        known |= {"rung": outcome.handoff.rung, "state": outcome.state}
        if outcome.completed:
            return Sent(status="ok", reply=outcome.result, **known)
        why = outcome.reason or outcome.code or outcome.state
        return Sent(status="error", error=why, code=outcome.code, sent_before_error=True, **known)


def _accepted(handoff: Handoff) -> Sent:
    return Sent(
        status="accepted",
        run_id=handoff.id,
        session_key=handoff.recipient,
        rung=handoff.rung,
        state=handoff.state,
    )


def _refused(error: NodropError, to: str | None) -> Sent:
    status: Status = "forbidden" if isinstance(error, ForbiddenError) else "error"
    return Sent(status=status, session_key=to, error=error.detail, code=error.code)
