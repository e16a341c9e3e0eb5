"""A log with signatures in it, kept by a real relay; and ways to forge it."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kit.keyholder import KeyHolder
from nodrop import app
from nodrop.audit.verify.chain import Checkpoint, read_entry
from nodrop.audit.verify.finding import Verdict
from nodrop.audit.verify.verifier import Verifier
from nodrop.protocol import canonical
from nodrop.protocol.entries import hash_of, salted_digest
from nodrop.protocol.identity import keys
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

View = dict[str, Any]


class Team:
    """Two agents with keys, and an operator."""

    def __init__(self, relay: Relay, clock: FakeClock) -> None:
        self.relay = relay
        self.clock = clock
        self.holders: dict[str, KeyHolder] = {}
        self._commands = 0

    async def call(
        self, agent: str, operation: str, handoff: str | None = None, /, **fields: Any
    ) -> View:
        """Ask as the operator `me`, or signed as an agent with a key."""
        name = fields.pop("named", None)
        if agent in self.holders:
            secret = self.holders[agent].bearer(self.clock.now())
            self._commands += 1
            fields.setdefault("command_id", f"c{self._commands}")
            if operation in {"offer", "complete", "fail", "reject"}:
                fields = self.holders[agent].signed(
                    operation, fields, now=self.clock.now(), handoff=handoff
                )
        else:
            secret = f"nd_{agent}"
            role = "operator" if agent == "me" else "agent"
            await self.relay.ensure_token("default", agent=agent, role=role, secret=secret)
        caller = await self.relay.authenticate(secret)
        transport = InProcessTransport(self.relay, caller)
        return await transport.call(operation, fields, handoff=handoff, name=name)

    async def join(self, agent: str) -> KeyHolder:
        invitation = (await self.call("me", "create_invitation", agent=agent))["invitation"]
        holder = KeyHolder(agent)
        caller = await self.relay.authenticate(invitation)
        joining = holder.joining(invitation)
        await InProcessTransport(self.relay, caller).call("join", joining)
        self.holders[agent] = holder
        return holder

    async def worked(self, **offer: Any) -> str:
        """Have the asker hand something to the doer, who does it; return its id."""
        made = (await self.call("asker", "offer", **{"to": "doer", "payload": {"n": 1}} | offer))[
            "handoff"
        ]["id"]
        await self.call("doer", "ack", made)
        await self.call("doer", "complete", made, attempt=1, result={"ok": 1.5})
        return made

    async def saved(self) -> "Saved":
        entries: list[View] = []
        while page := (await self.call("me", "log", after=len(entries), limit=500))["entries"]:
            entries += page
        checkpoint = await self.call("me", "checkpoints")
        return Saved(entries, checkpoint)


class Saved:
    """A log as somebody saved it, with everything a forger could wish for."""

    def __init__(self, entries: list[View], checkpoint: View) -> None:
        self.entries = entries
        self.checkpoint = checkpoint

    def find(self, kind: str, nth: int = 0) -> View:
        return [e for e in self.entries if e["type"] == kind][nth]

    def rewrite(self) -> None:
        """Compute digests and hashes anew, as a relay could that wants to hide something."""
        before = self.entries[0]["prev_hash"]
        for number, entry in enumerate(self.entries, self.entries[0]["seq"]):
            entry |= {"seq": number, "prev_hash": before}
            if entry["body"] is not None and entry["type"] != "agent.registered.v1":
                body = canonical.dumps(entry["body"])
                entry["body_digest"] = salted_digest(keys.decode(entry["body_salt"]), body)
            before = entry["hash"] = hash_of(read_entry("default", entry))

    def verdict(self, *, held_to: bool = False, relay_key: str | None = None) -> Verdict:
        verifier = Verifier(
            "default",
            relay_key=relay_key or self.checkpoint["public_key"],
        )
        if held_to:
            verifier.expect(msgspec.convert(self.checkpoint, Checkpoint))
        for entry in self.entries:
            verifier.read(entry)
        return verifier.verdict()


@pytest.fixture
async def team(tmp_path: Path) -> AsyncGenerator[Team]:
    clock = FakeClock()
    async with app.open_relay(":memory:", home=tmp_path, clock=clock) as relay:
        team = Team(relay, clock)
        for agent in ("asker", "doer"):
            await team.join(agent)
        yield team


@pytest.fixture
def found() -> Callable[[Saved], tuple[int, str]]:
    """What is found wrong with a log: the entry and why."""

    def found(saved: Saved) -> tuple[int, str]:
        finding = saved.verdict().finding
        assert finding is not None
        return finding.seq, finding.why

    return found
