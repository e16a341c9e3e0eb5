"""Tampering: random changes to a log, each of which `verify` must find, and name.

A checkpoint that somebody kept outside is what makes this possible: a log that was rewritten and
hashed anew holds by itself. `nodrop prove tampering` runs them.
"""

import copy
import random
from collections import Counter
from typing import Any, Final, cast

import msgspec

from nodrop.audit.verify.chain import Checkpoint, read_entry
from nodrop.audit.verify.verifier import Verifier
from nodrop.log.memory import MemoryStore
from nodrop.model.limits import MINUTE
from nodrop.protocol.entries import hash_of
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock
from nodrop_proof.kit.signer import MemorySigner
from nodrop_proof.simulate.ids import SeededIds

View = dict[str, Any]
KINDS: Final = ("edit", "delete", "reorder", "truncate", "rewrite", "insert", "body")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A log, and what was kept of it elsewhere."""

    entries: list[View]
    checkpoint: Checkpoint


class Report(msgspec.Struct, kw_only=True):
    """What was tried, and what was found."""

    tried: Counter[str] = msgspec.field(default_factory=Counter[str])
    missed: list[tuple[str, int]] = []
    """Kind and seed of what was not found."""
    misnamed: list[tuple[str, int]] = []
    """Kind and seed of what was found somewhere else than it was."""

    @property
    def ok(self) -> bool:
        """Whether everything was found and named."""
        return not self.missed and not self.misnamed


async def evidence(*, handoffs: int = 8) -> Evidence:
    """Return the log of a relay on which a few chains were worked through."""
    clock = FakeClock()
    ids = SeededIds(clock, random.Random(0))  # noqa: S311  # of a log that guards nothing
    relay = await Relay.start(MemoryStore(), clock=clock, ids=ids, signer=MemorySigner())
    try:
        await relay.ensure_team("default")
        me = await _member(relay, "me", "operator")
        worker = await _member(relay, "worker", "agent")
        for number in range(handoffs):
            then = [{"to": "worker"}] if number % 2 else []
            fields = {"to": "worker", "title": f"n {number}", "payload": {"n": number}}
            await me.call("offer", {**fields, "then": then})
            for _ in range(1 + len(then)):
                [delivery] = (await worker.call("take", {}))["deliveries"]
                handoff, said = delivery["handoff"]["id"], {"attempt": delivery["attempt"]}
                await worker.call("ack", {**said, "status": "on it"}, handoff=handoff)
                await worker.call("complete", {**said, "result": number}, handoff=handoff)
            clock.advance(MINUTE)
        log = await me.call("log", {"limit": 500})
        kept = msgspec.convert(await me.call("checkpoints", {}), Checkpoint)
    finally:
        await relay.stop()
    return Evidence(entries=log["entries"], checkpoint=kept)


async def _member(relay: Relay, name: str, role: str) -> InProcessTransport:
    secret = f"nd_{name}_secret"
    await relay.ensure_token("default", agent=name, role=role, secret=secret)
    return InProcessTransport(relay, await relay.authenticate(secret))


def first_bad(found: Evidence, entries: list[View], *, checkpoint: bool = True) -> int | None:
    """Return the entry that verifying a log names; None: it holds."""
    verifier = Verifier(
        found.checkpoint.team,
        relay_key=found.checkpoint.public_key,
    )
    if checkpoint:
        verifier.expect(found.checkpoint)
    for entry in entries:
        verifier.read(entry)
    verdict = verifier.verdict()
    return verdict.finding.seq if verdict.finding else None


def tampered(found: Evidence, kind: str, chance: random.Random) -> tuple[list[View], int]:
    """Return a log with one change of a kind, and the number that verifying must name."""
    entries = copy.deepcopy(found.entries)
    at = chance.randrange(1, len(entries) - 1)
    seq = entries[at]["seq"]
    match kind:
        case "edit":
            field = chance.choice(("actor", "type", "at", "hash", "prev_hash", "data"))
            entries[at][field] = _other(entries[at][field])
            return entries, seq
        case "delete":
            del entries[at]
            return entries, seq + 1
        case "reorder":
            entries[at], entries[at + 1] = entries[at + 1], entries[at]
            return entries, seq + 1
        case "truncate":
            return entries[:at], seq
        case "insert":
            entries.insert(at, copy.deepcopy(entries[at]))
            return entries, seq
        case "body":
            # Manifests are kept byte for byte and shown as values: their digests say nothing here.
            places = [
                number
                for number, entry in enumerate(entries)
                if isinstance(entry["body"], dict) and entry["type"] != "agent.registered.v1"
            ]
            place = chance.choice(places)
            entries[place]["body"] = {**entries[place]["body"], "forged": chance.random()}
            return entries, entries[place]["seq"]
        case _:
            return _rewritten(entries, at), found.checkpoint.size


def _rewritten(entries: list[View], at: int) -> list[View]:
    """Return a log that holds by itself: changed at one place, and hashed anew from there on."""
    entries[at]["command_id"] = "forged"
    for number in range(at, len(entries)):
        if number:
            entries[number]["prev_hash"] = entries[number - 1]["hash"]
        entries[number]["hash"] = hash_of(read_entry("default", entries[number]))
    return entries


def _other(value: Any) -> Any:
    if isinstance(value, dict):
        return {**cast("View", value), "forged": 1}
    if isinstance(value, str) and value[:4].isdecimal() and value.endswith("Z"):
        return f"2001{value[4:]}"
    changed = "0" if str(value)[-1:] != "0" else "1"
    return f"{str(value)[:-1]}{changed}"


def trial(found: Evidence, count: int, seed: int) -> Report:
    """Return what verifying makes of `count` random changes."""
    report = Report()
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")  # noqa: S311  # to be repeated
        kind = KINDS[number % len(KINDS)]
        entries, expected = tampered(found, kind, chance)
        named = first_bad(found, entries)
        report.tried[kind] += 1
        if named is None:
            report.missed.append((kind, number))
        elif named != expected:
            report.misnamed.append((kind, number))
    return report
