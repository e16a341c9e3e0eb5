"""A relay before which attackers stand: what it holds, and what no attack may change.

For attack matrices: one generates `Attack`s, and the fortress says which of them came to something.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, Final

import msgspec

from kit.asgi import WAIT_SECONDS_MAX, Response, Visitor
from nodrop.log.memory import MemoryStore
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol import requests
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.gate import Gate
from nodrop.servers.http.door import HTTPDoor
from nodrop.servers.websocket.door import WebSocketDoor
from nodrop.testing.clock import FakeClock
from nodrop_proof.kit.signer import MemorySigner

TEAM: Final = "default"
ELSEWHERE: Final = "elsewhere"
ROLES: Final = {
    "inbox_monitor": "agent",
    "code_agent": "agent",
    "bystander": "agent",
    "watcher": "observer",
    "me": "operator",
}
STATES: Final = (
    "delivered",  # taken from the inbox, so the first to be there
    "offered",
    "accepted",
    "blocked",
    "completed",
    "failed",
    "rejected",
    "expired",
    "cancelled",
)
UNKNOWN: Final = "01a00000-0000-7000-8000-000000000000"


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """One request that must come to nothing."""

    name: str
    method: str = "POST"
    path: str
    body: Any = msgspec.UNSET
    headers: Mapping[str, str] = {}
    token: str | None = None
    """Sent as it should be; None: not sent."""
    status: int
    code: str
    reason: str | None
    """What the security log says of it; None: not a matter of who asks."""


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """One attack that did not come to nothing in the way it should."""

    attack: str
    status: int
    code: str | None
    body: bytes
    refused: bool
    """Whether it was answered as it should be."""
    changed: bool
    """Whether the relay holds something else than before."""
    noted: dict[str, int]
    """What the security log says of it."""


Effect = Callable[[Breach], bool]
"""Something bad that may have come of an attack."""


def let_in(breach: Breach) -> bool:
    """It was answered as if it were welcome."""
    return breach.status < _REFUSED


def carried_out(breach: Breach) -> bool:
    """It was answered as if it were welcome, and what it asked for was done."""
    return let_in(breach) and breach.changed


def unnoticed(breach: Breach) -> bool:
    """It was refused as it should be, and the security log does not say so."""
    return breach.refused and not breach.noted


_REFUSED: Final = 400
_FAULT: Final = 500


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """One check of the relay's taken away, and what must come of that.

    A control that merely breaks the relay would pass for one that lets an attack through, so it
    says which attack that is and how one can tell.
    """

    check: str
    family: str
    disabled: Callable[[], AbstractContextManager[Any]]
    attack: str
    """The name of the attack that gets through."""
    effect: Effect = carried_out


class _Ids:
    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self) -> str:
        return f"019b76da-a800-7000-8000-{next(self._numbers):012d}"

    def secret(self) -> str:
        return f"secret-{next(self._numbers)}"

    def salt(self) -> bytes:
        return next(self._numbers).to_bytes(16)


class Fortress:
    """The relay under attack."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.clock = FakeClock()
        self.limits = limits
        self.store = MemoryStore()
        self.revoked = ""
        """The secret of a token that was revoked."""
        self.handoffs: dict[str, str] = {}
        """By state, from `inbox_monitor` to `code_agent`."""
        self.relay: Relay
        self.stranger: Visitor

    async def open(self) -> None:
        """Fill it: two teams, every role, a handoff in every state."""
        self.relay = await Relay.start(
            self.store,
            clock=self.clock,
            ids=_Ids(),
            signer=MemorySigner(),
            limits=self.limits,
        )
        for team in (TEAM, ELSEWHERE):
            await self.relay.ensure_team(team)
        for agent, role in ROLES.items():
            await self._admit(TEAM, agent, role)
        await self._admit(ELSEWHERE, "foreigner", "operator")
        revoked = await self.ask("me", "create_token", requests.CreateToken(agent="bystander"))
        await self.ask("me", "revoke_token", requests.RevokeToken(token_id=revoked["token_id"]))
        self.revoked = revoked["token"]
        await self._publish("code_agent", "bug_triage", "deploy")
        await self._publish("bystander", "deploy")
        for state in STATES:
            self.handoffs[state] = await self._in_state(state)
        gate = Gate(
            http=HTTPDoor(self.relay),
            websocket=WebSocketDoor(self.relay, new_id=lambda: "process"),
            refused=lambda error, address: self.relay.refusals.note(
                error, operation="gate", address=address
            ),
        )
        self.stranger = Visitor(gate)

    async def _admit(self, team: str, agent: str, role: str) -> None:
        await self.relay.ensure_token(team, agent=agent, role=role, secret=f"token-{agent}")

    async def ask(
        self,
        agent: str,
        operation: str,
        request: requests.Request,
        about: str | None = None,
        *,
        name: str | None = None,
    ) -> Any:
        """Ask as one of the team."""
        caller = Caller(team=TEAM, agent=agent, operator=ROLES[agent] == "operator")
        name = name or getattr(request, "token_id", None) or getattr(request, "agent", None)
        reply = await self.relay.call(caller, operation, request, reference=about, name=name)
        return msgspec.json.decode(msgspec.json.encode(reply.answer))

    async def _publish(self, agent: str, *capabilities: str) -> None:
        can = [{"name": name} for name in capabilities]
        manifest = msgspec.Raw(msgspec.json.encode({"agent_id": agent, "capabilities": can}))
        await self.ask(agent, "register", requests.Register(agent=agent, manifest=manifest))

    async def _in_state(self, state: str) -> str:
        offer = requests.Offer(
            to="code_agent",
            capability="bug_triage",
            title="the words",
            payload={"secret": "the data"},
            idempotency_key=f"key-{state}",
            deadline="1s" if state == "expired" else "4h",
        )
        made: str = (await self.ask("inbox_monitor", "offer", offer))["handoff"]["id"]
        if state == "expired":
            self.clock.advance(2_000)
            await self._come_to(made, state)
        if state == "delivered":
            take = requests.Take(max=1)
            await self.ask("code_agent", "take", take)
        elif state == "rejected":
            await self.ask("code_agent", "reject", requests.Reject(), made)
        elif state == "cancelled":
            await self.ask("inbox_monitor", "cancel", requests.Cancel(), made)
        elif state in {"accepted", "blocked", "completed", "failed"}:
            await self.ask("code_agent", "ack", requests.Ack(), made)
        if state == "blocked":
            await self.ask("code_agent", "block", requests.Block(attempt=1, question="?"), made)
        elif state == "completed":
            await self.ask("code_agent", "complete", requests.Complete(attempt=1, result=1), made)
        elif state == "failed":
            await self.ask("code_agent", "fail", requests.Fail(attempt=1), made)
        await self._come_to(made, state)
        return made

    async def _come_to(self, handoff_id: str, state: str) -> None:
        """Return when a handoff is in a state: the relay may have to notice what time it is."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            look = requests.GetHandoff(wait="60s", until="finished")
            if state == "expired":
                await self.ask("me", "get_handoff", look, handoff_id)
        shown = await self.ask("me", "get_handoff", requests.GetHandoff(), handoff_id)
        assert shown["handoff"]["state"] == state

    # --- attacks ---

    async def state(self) -> tuple[Any, ...]:
        """Return what no attack may change."""
        heads = [(await self.store.head(team)).hash for team in (TEAM, ELSEWHERE)]
        return (*heads, len(await self.store.tokens()))

    def refused(self) -> Counter[str]:
        """Return how often the security log says what."""
        counted: Counter[str] = Counter()
        for refusal in self.relay.refusals.of(TEAM, limit=10_000):
            counted[refusal.reason] += refusal.count
        for refusal in self.relay.refusals.of(ELSEWHERE, limit=10_000):
            if refusal.team is not None:
                counted[refusal.reason] += refusal.count
        return counted

    async def send(self, attack: Attack) -> Response:
        """Make one attack."""
        headers = dict(attack.headers)
        if attack.token is not None:
            headers["authorization"] = f"Bearer {attack.token}"
        return await self.stranger.request(
            attack.method, attack.path, json=attack.body, headers=headers
        )

    async def withstand(self, attacks: Sequence[Attack]) -> list[Breach]:
        """Make attacks; return those that came to something, and to what."""
        breaches: list[Breach] = []
        before, counts = await self.state(), self.refused()
        for attack in attacks:
            response = await self.send(attack)
            code = response.json().get("code")
            after, now = await self.state(), self.refused()
            breach = Breach(
                attack=attack.name,
                status=response.status,
                code=code,
                body=response.body,
                refused=(response.status, code) == (attack.status, attack.code),
                changed=after != before,
                noted=dict(now - counts),
            )
            noted = {attack.reason: 1} if attack.reason else {}
            if not breach.refused or breach.changed or breach.noted != noted:
                breaches.append(breach)
            before, counts = after, now
        return breaches

    async def without(self, control: Control, attacks: Sequence[Attack]) -> list[str]:
        """Make attacks while a check is taken away; return what speaks against the control."""
        with control.disabled():
            breaches = await self.withstand(attacks)
        doubts = [
            f"{breach.attack}: the relay failed: {breach.body!r}"
            for breach in breaches
            if breach.status >= _FAULT
        ]
        if not any(b.attack == control.attack and control.effect(b) for b in breaches):
            doubts.append(f"{control.attack}: did not get through")
        return doubts
