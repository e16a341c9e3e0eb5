"""A log that holds, and every way in which one does not."""

import copy
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import pytest

from kit.keyholder import KeyHolder
from nodrop.audit.verify.chain import Checkpoint
from nodrop.audit.verify.verifier import Verifier
from nodrop.protocol import canonical
from nodrop.protocol.identity import keys, signatures
from nodrop.testing.clock import FakeClock

View = dict[str, Any]


class Saved(Protocol):
    entries: list[View]
    checkpoint: View

    def find(self, kind: str, nth: int = ...) -> View: ...
    def rewrite(self) -> None: ...
    def verdict(self, *, held_to: bool = ..., relay_key: str | None = ...) -> Any: ...


class Team(Protocol):
    clock: FakeClock
    holders: dict[str, KeyHolder]

    async def call(self, agent: str, operation: str, /, *of: str, **fields: Any) -> View: ...
    async def worked(self, **offer: Any) -> str: ...
    async def saved(self) -> Saved: ...


Found = Callable[[Saved], tuple[int, str]]


async def test_what_a_team_does_beside_single_handoffs_holds_too(team: Team) -> None:
    rule: Any = {
        "on": "mail.*",
        "when": "event.data.n > 1",
        "offer": {"to": "doer", "title": "${event.type}"},
    }
    await team.call("me", "put_trigger", named="rule", **rule)
    for n in (1, 2):
        await team.call("me", "emit", type="mail.came", event_id=f"e{n}", data={"n": n, "b": 0.5})
    await team.call("me", "remove_trigger", named="rule")
    await team.call("me", "subscribe_topic", named="topic")
    await team.call("me", "say", text="hello", to="doer")
    await team.call("me", "tell_status", status="stuck", text="no key", topic="topic")
    outlet: Any = {"url": "mailto://x", "kind": "notify", "test": True}
    await team.call("me", "put_outlet", named="mail", **outlet)
    await team.call("me", "remove_outlet", named="mail")
    await team.call("me", "note_team", text="a remark")
    members = {"one": {"to": "helper", "payload": {"z": 1, "a": 2}}, "two": {"to": "other"}}
    await team.call("me", "offer_group", offers=members, join="any")
    asked = (await team.call("me", "offer", to="helper", title="a question"))["handoff"]["id"]
    await team.call("helper", "ack", asked, status="on it")
    blocked = await team.call("helper", "block", asked, attempt=1, question="Which?", to="me")
    seq = blocked["handoff"]["question"]["seq"]
    await team.call("me", "answer", asked, seq=seq, answer={"b": 1, "a": [1.5]})
    await team.call("me", "note", asked, text="about it")
    saved = await team.saved()
    kinds = {entry["type"] for entry in saved.entries if entry["body"] is not None}
    assert {"trigger.set.v1", "event.emitted.v1", "outlet.tested.v1"} <= kinds, kinds
    verdict = saved.verdict(held_to=True)
    assert (verdict.finding, verdict.holds) == (None, True)
    assert verdict.checked["bodies"] >= len(kinds)


async def test_a_checkpoint_of_what_was_pruned_is_not_said_to_be_checked(team: Team) -> None:
    early = await team.call("me", "checkpoints")
    await team.worked()
    saved = await team.saved()
    verifier = Verifier("default", relay_key=early["public_key"])
    for kept in (early, saved.checkpoint):
        verifier.expect(msgspec.convert(kept, Checkpoint))
    for entry in saved.entries[early["size"] + 1 :]:
        verifier.read(entry)
    verdict = verifier.verdict()
    assert (verdict.finding, verdict.checked["checkpoints"]) == (None, 1)
    assert verdict.unchecked["checkpoints of what was pruned"] == 1


async def test_a_log_with_everything_in_it_holds(team: Team) -> None:
    await team.worked(then=[{"to": "asker"}], deadline="2h", watchers=["me"])
    await team.call("me", "set_policy", signatures="required")
    rejected = (await team.call("asker", "offer", to="doer"))["handoff"]["id"]
    await team.call("doer", "reject", rejected, reason="no")
    await team.call("me", "redrive", rejected)
    late = (await team.call("asker", "offer", to="doer", deadline="10s"))["handoff"]["id"]
    await team.call("doer", "ack", late)
    team.clock.advance(11_000)
    await team.call("doer", "complete", late, attempt=1, result="at last")
    await team.call("me", "accept", late)
    rotated = KeyHolder("asker")
    added = rotated.adding("rotating")
    await team.call("asker", "add_key", **added, command_id="rotating", overlap="1h")
    await team.worked()
    team.holders["asker"] = rotated
    team.clock.advance(2 * 3_600_000)
    await team.worked()
    await team.call("me", "revoke_key", named=rotated.key.id)
    verdict = (await team.saved()).verdict(held_to=True)
    assert (verdict.finding, verdict.holds) == (None, True)
    checked = verdict.checked
    assert checked["signatures"] == 13
    assert checked["legs within what was signed"] == 1
    assert checked["statements of the relay"] >= 7
    assert checked["handoffs"] == 8
    assert checked["bodies"] > checked["handoffs"]


async def test_a_changed_word_is_named(team: Team, found: Found) -> None:
    await team.worked()
    saved = await team.saved()
    for name, change in (
        ("actor", "me"),
        ("at", "2026-01-01T00:00:00.001Z"),
        ("data", {"attempt": 2}),
        ("type", "handoff.failed.v1"),
        ("hash", "0" * 64),
    ):
        forged = copy.deepcopy(saved)
        entry = forged.find("handoff.completed.v1")
        entry[name] = change
        assert found(forged)[0] == entry["seq"], name


async def test_a_changed_body_is_named(team: Team, found: Found) -> None:
    await team.worked()
    saved = await team.saved()
    entry = saved.find("handoff.completed.v1")
    entry["body"]["result"] = {"ok": 2.5}
    assert found(saved) == (entry["seq"], "its body is not the one it was written with")


async def test_a_missing_entry_is_named(team: Team, found: Found) -> None:
    await team.worked()
    saved = await team.saved()
    gone = saved.entries.pop(7)
    assert found(saved)[0] == gone["seq"] + 1


async def test_a_lost_end_shows_where_a_checkpoint_was_kept(team: Team) -> None:
    await team.worked()
    saved = await team.saved()
    for _ in range(2):
        del saved.entries[-1]
        finding = saved.verdict(held_to=True).finding
        assert "the end is missing" in finding.why
    saved.checkpoint["size"] -= 1
    assert "not signed" in saved.verdict(held_to=True).finding.why


async def test_an_erased_body_is_no_fault(team: Team) -> None:
    await team.worked()
    saved = await team.saved()
    for kind in ("handoff.offered.v1", "handoff.completed.v1"):
        saved.find(kind)["body"] = None
    verdict = saved.verdict()
    assert verdict.holds
    assert verdict.unchecked["bodies that are erased, or not for you to see"] == 2


# A relay that wants to deceive can compute every digest and every hash anew. Here it does.


def _in(place: str, **change: Any) -> Callable[[Saved], int]:
    def forge(saved: Saved) -> int:
        entry = saved.find(place)
        entry["body"] |= change
        return entry["seq"]

    return forge


def _data(place: str, **change: Any) -> Callable[[Saved], int]:
    def forge(saved: Saved) -> int:
        entry = saved.find(place)
        entry["data"] |= change
        return entry["seq"]

    return forge


def _filed(saved: Saved) -> int:
    entry = saved.find("handoff.offered.v1")
    entry["data"]["terms"]["marks"] = ["project=thief"]
    return entry["seq"]


def _stripped(place: str) -> Callable[[Saved], int]:
    def forge(saved: Saved) -> int:
        entry = saved.find(place)
        for name in ("signed", "within", "verified"):
            entry["body"].pop(name, None)
        return entry["seq"]

    return forge


def _unstated(saved: Saved) -> int:
    saved.entries.remove(saved.find("relay.stated.v1"))
    return saved.find("handoff.offered.v1")["seq"]


def _restated(saved: Saved) -> int:
    """State something else, signed by a key that is not the relay's."""
    entry = saved.find("relay.stated.v1")
    payload = keys.decode(entry["data"]["jws"].split(".")[1])
    other = KeyHolder("relay")
    entry["data"]["jws"] = other.jws({"typ": signatures.STATEMENT}, payload)
    return entry["seq"]


def _never_invited(saved: Saved) -> int:
    entry = saved.find("key.added.v1", 1)
    saved.entries.remove(saved.find("invitation.created.v1", 1))
    return entry["seq"] - 1


def _own_key(saved: Saved) -> int:
    """Swap an agent's key for one that the relay holds, and sign with that."""
    entry = saved.find("key.added.v1", 0)
    mine = KeyHolder("asker")
    entry["data"] |= {"key_id": mine.key.id, "public_key": mine.key.public.text}
    return entry["seq"]


def _revoked_before(saved: Saved) -> int:
    offered = saved.find("handoff.offered.v1")
    added = saved.find("key.added.v1", 0)
    revoked = copy.deepcopy(added)
    revoked |= {"type": "key.revoked.v1", "actor": "me", "command_id": None}
    revoked["data"] = {"key_id": added["data"]["key_id"], "agent": "asker"}
    saved.entries.insert(saved.entries.index(offered), revoked)
    return offered["seq"] + 1


FORGERIES: dict[str, tuple[Callable[[Saved], int], str]] = {
    "another payload": (_in("handoff.offered.v1", payload={"n": 2}), "did not sign"),
    "another result": (_in("handoff.completed.v1", result={"ok": 2.5}), "did not sign"),
    "another recipient": (_data("handoff.offered.v1", recipient="thief"), "thief is asked"),
    "another sender": (_data("handoff.offered.v1", sender="doer"), "from somebody else"),
    "other watchers": (_data("handoff.offered.v1", watchers=["thief"]), "watchers"),
    "a mark that nobody signed": (_filed, "another project was signed"),
    "other legs": (_data("handoff.offered.v1", legs=[{"to": "thief"}]), "legs"),
    "a signature taken away": (_stripped("handoff.completed.v1"), "wants outcomes signed"),
    "an unsigned offer": (_stripped("handoff.offered.v1"), "wants offers signed"),
    "a silent relay": (_unstated, "never stated"),
    "somebody else's statement": (_restated, "the relay's signature"),
    "nobody's invitation": (_never_invited, "nobody made the invitation"),
    "a key of the relay's own": (_own_key, "its proof"),
    "a key that was revoked": (_revoked_before, "revoked"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forgery_is_named_though_every_hash_fits(
    team: Team, found: Found, forgery: str
) -> None:
    await team.call("me", "set_policy", signatures="required")
    await team.worked(watchers=["me"])
    saved = await team.saved()
    forge, why = FORGERIES[forgery]
    seq = forge(saved)
    saved.rewrite()
    assert found(saved)[0] == seq
    assert why in found(saved)[1]


async def test_a_leg_outside_what_was_signed_is_named(team: Team, found: Found) -> None:
    await team.worked(then=[{"to": "asker"}])
    saved = await team.saved()
    leg = saved.find("handoff.offered.v1", 1)
    leg["data"]["recipient"] = "thief"
    saved.rewrite()
    assert found(saved) == (leg["seq"], "thief is asked, and asker was signed")


async def test_a_move_that_cannot_happen_is_named(team: Team, found: Found) -> None:
    await team.worked()
    saved = await team.saved()
    accepted = saved.find("handoff.accepted.v1")
    saved.entries.remove(accepted)
    saved.rewrite()
    seq, why = found(saved)
    assert (seq, "cannot happen" in why) == (accepted["seq"], True)


async def test_words_put_into_anothers_mouth_are_named(team: Team, found: Found) -> None:
    await team.worked()
    saved = await team.saved()
    accepted = saved.find("handoff.accepted.v1")
    accepted["actor"] = "asker"
    saved.rewrite()
    assert found(saved) == (accepted["seq"], "only doer can have said this")


async def test_another_relays_key_is_not_taken_for_this_ones(team: Team) -> None:
    await team.worked()
    saved = await team.saved()
    other = KeyHolder("relay").key.public.text
    assert "relay's signature" in saved.verdict(relay_key=other).finding.why
    assert "another key" in saved.verdict(relay_key=other, held_to=True).finding.why


async def test_a_log_that_begins_later_is_checked_as_far_as_it_goes(team: Team) -> None:
    await team.worked()
    await team.worked()
    saved = await team.saved()
    begun = saved.find("handoff.accepted.v1")
    saved.entries = saved.entries[saved.entries.index(begun) :]
    verdict = saved.verdict()
    assert (verdict.holds, verdict.checked["handoffs"]) == (True, 1)
    assert verdict.unchecked["handoffs that began before this log does"] == 1
    assert verdict.unchecked["signatures of keys that were added before this log begins"] == 2


def test_what_is_signed_is_canonical() -> None:
    assert canonical.rfc8785({"b": 1.0, "a": 1e21}) == b'{"a":1e+21,"b":1}'
