"""Every pair of state and command is decided or refused, and a refusal changes nothing."""

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kit import plain_fold
from nodrop.model import clocks, commands, decisions, machine
from nodrop.model.commands import Actor, Candidate, Command
from nodrop.model.errors import CallerError
from nodrop.model.events import Event
from nodrop.model.handoff import (
    ClockName,
    Escalation,
    Handoff,
    Join,
    Member,
    Proposal,
    Rung,
    State,
    Timer,
    When,
)
from nodrop.model.limits import DAY, HOUR, MINUTE, SECOND
from nodrop.testing.play import OPERATOR, OTHER, RECIPIENT, REQUESTER, T0, Play

ACTORS = (REQUESTER, RECIPIENT, OTHER, OPERATOR)
LADDER = tuple(
    Escalation(when=when, after_ms=after, notify="me") for when in When for after in (0, HOUR)
)

MEMBER = Member(label="a", id="h3", state=State.OFFERED)
GROUP = Join(needed=1, members=(MEMBER,))


@pytest.fixture(autouse=True, scope="module")
def _folded_as_plainly() -> Iterator[None]:
    """Whatever a script here leads to, common events are folded as `kit.plain_fold` has it."""
    evolve = machine.evolve

    def both(before: Handoff | None, event: Event, **known: Any) -> Handoff:
        after = evolve(before, event, **known)
        plainly = plain_fold.folded(before, event, **known)
        assert plainly is None or after == plainly
        unseen = after.receipts[-1].rung is Rung.FINISHED
        assert unseen == plain_fold.outcome_unseen(after)
        return after

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "evolve", both)
        yield


attempts = st.none() | st.integers(0, 4)
questions = st.integers(1, 12)
commands_of_all_kinds = st.one_of(
    st.builds(
        commands.Deliver,
        process=st.sampled_from(("p1", "p2")),
        heartbeat_ms=st.none() | st.just(10_000),
    ),
    st.builds(commands.Acknowledge, attempt=attempts, next_update_at=st.none() | st.just(T0 + 1)),
    st.builds(
        commands.Acknowledge,
        attempt=st.none(),
        queued=st.just(value=True),
        next_update_at=st.none() | st.just(T0 + 1),
    ),
    st.builds(commands.Update, attempt=attempts),
    st.builds(commands.Block, attempt=attempts, park=st.booleans(), body=st.just(b"{}")),
    st.builds(
        commands.Counter,
        attempt=attempts,
        proposal=st.just(Proposal(deadline_at=T0 + 2 * DAY, update_every_ms=HOUR)),
    ),
    st.builds(commands.Reject, attempt=attempts),
    st.builds(commands.Complete, attempt=attempts, body=st.just(b"{}")),
    st.builds(commands.Fail, attempt=attempts, retryable=st.booleans(), code=st.just("failed")),
    st.builds(commands.Release, attempt=attempts, checkpoint=st.none() | st.just(b"{}")),
    st.builds(
        commands.RecordStep,
        attempt=attempts,
        name=st.sampled_from(("a", "b")),
        body=st.just(b"1"),
    ),
    st.builds(commands.Checkpoint, attempt=attempts, body=st.just(b"{}")),
    st.builds(commands.AnswerQuestion, question=questions, body=st.just(b"{}")),
    st.builds(commands.Agree, question=questions),
    st.builds(commands.Decline, question=questions),
    st.builds(commands.Cancel),
    st.builds(
        commands.Reassign,
        to=st.sampled_from((Candidate(agent="support_agent"), Candidate(agent="code_agent"))),
    ),
    st.builds(commands.Settle),
    st.builds(commands.MarkOutcomeDelivered),
    st.builds(commands.Redrive, successor=st.just("h2")),
    st.builds(commands.AcceptLate, successor=st.just("h2")),
    st.builds(commands.Discard),
    st.builds(
        commands.MoveMember,
        member=st.builds(replace, st.just(MEMBER), state=st.sampled_from(State)),
    ),
    st.builds(commands.CloseGroup, body=st.just(b"{}")),
    st.builds(commands.Consume),
    st.builds(commands.Erase),
    st.builds(commands.Dismiss, reader=st.sampled_from((None, "a", "b", "me"))),
    st.builds(commands.Note, body=st.just(b"{}")),
    st.builds(commands.LapseLease, process=st.sampled_from(("p1", "p2"))),
    st.builds(commands.LapseQueue),
    st.builds(commands.Revive, process=st.sampled_from(("p1", "p2"))),
    st.builds(commands.Tick),
    st.builds(commands.CountAnew),
)
spans = st.sampled_from((SECOND, MINUTE, 20 * MINUTE, HOUR, 5 * HOUR, DAY))
steps = st.lists(
    st.tuples(st.sampled_from(ACTORS), commands_of_all_kinds, st.booleans()) | spans,
    min_size=5,
    max_size=40,
)


@settings(
    max_examples=400, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow]
)
@given(steps, st.booleans(), st.none() | st.just(GROUP))
def test_any_script_keeps_every_promise(
    script: list[tuple[Actor, Command, bool] | int],
    routed: bool,  # noqa: FBT001  # hypothesis passes it by position
    join: Join | None,
) -> None:
    """`Play` checks the invariants after every move."""
    candidates = ("code_agent", "support_agent")
    play = Play(escalation=LADDER, routed=routed, candidates=candidates, join=join)
    for step in script:
        if isinstance(step, int):
            play.pass_time(step)
            continue
        actor, command, right = step
        command = _made_right(command, play) if right else command
        before = play.handoff
        try:
            play.do(command, by=actor)
        except CallerError:
            assert play.handoff is before


def _made_right(command: Command, play: Play) -> Command:
    """Name the attempt and the question that are current: wrong ones test a single branch."""
    fields = command.__struct_fields__
    if isinstance(command, commands.Acknowledge) and command.queued:
        return command
    if "attempt" in fields:
        return replace(command, attempt=play.h.attempt)
    question = play.h.question or play.h.withdrawn
    if "question" in fields and question is not None:
        return replace(command, question=question.version)
    return command


def test_random_scripts_reach_every_kind_of_event() -> None:
    """A generator that misses cases proves little about them."""
    seen: set[str] = set()
    for seed in range(900):
        dice = random.Random(seed)
        play = Play(
            escalation=LADDER,
            routed=seed % 2 == 0,
            candidates=("code_agent", "support_agent"),
            timeout_ms=2 * HOUR if seed % 3 == 0 else None,
            deadline_at=T0 + (HOUR if seed % 5 == 0 else DAY),
            join=GROUP if seed % 4 == 0 else None,
        )
        for _ in range(40):
            if dice.random() < 0.1:
                play.up_since = play.now if dice.random() < 0.3 else play.up_since
                play.pass_time(dice.choice((SECOND, 20 * MINUTE, 5 * HOUR)))
                continue
            fitting = TOO_LATE if play.h.state is State.EXPIRED else GOING_ON
            command = _made_right(dice.choice((*EVERY_COMMAND, *fitting * 6)), play)
            with suppress(CallerError):
                play.do(command, by=dice.choice((*ACTORS, RECIPIENT, RECIPIENT)))
        seen |= {type(event).__name__ for event in play.events}
    assert seen == {kind.__name__ for kind in Event.__args__}


def _in(state: State) -> Play:
    play = Play(escalation=LADDER)
    match state:
        case State.OFFERED:
            pass
        case State.DELIVERED:
            play.deliver()
        case State.ACCEPTED:
            play.accept()
        case State.BLOCKED:
            play.ask(play.accept())
        case State.COMPLETED:
            play.do(commands.Complete(attempt=play.accept(), body=b"{}"))
        case State.FAILED:
            play.do(commands.Fail(attempt=play.accept(), retryable=False, code="failed"))
        case State.REJECTED:
            play.do(commands.Reject(attempt=None))
        case State.EXPIRED:
            play.pass_time(DAY)
        case State.CANCELLED:
            play.do(commands.Cancel(), by=OPERATOR)
    assert play.h.state is state
    return play


EVERY_COMMAND: tuple[Command, ...] = (
    commands.Deliver(process="p1", heartbeat_ms=None),
    commands.Acknowledge(attempt=1),
    commands.Acknowledge(attempt=None),
    commands.Acknowledge(attempt=None, queued=True),
    commands.Update(attempt=1),
    commands.Block(attempt=1, body=b"{}"),
    commands.Counter(attempt=1, proposal=Proposal(update_every_ms=1)),
    commands.Reject(attempt=1),
    commands.Complete(attempt=1, body=b"{}"),
    commands.Fail(attempt=1, retryable=True, code="failed"),
    commands.Fail(attempt=1, retryable=False, code="failed"),
    commands.Release(attempt=1),
    commands.RecordStep(attempt=1, name="a", body=b"1"),
    commands.Checkpoint(attempt=1, body=b"{}"),
    commands.AnswerQuestion(question=4, body=b"{}"),
    commands.Agree(question=4),
    commands.Decline(question=4),
    commands.Cancel(),
    commands.Reassign(to=Candidate(agent="support_agent")),
    commands.Settle(),
    commands.MarkOutcomeDelivered(),
    commands.Redrive(successor="h2"),
    commands.AcceptLate(successor="h2"),
    commands.Discard(),
    commands.MoveMember(member=MEMBER),
    commands.CloseGroup(body=b"{}"),
    commands.Consume(),
    commands.Erase(),
    commands.Dismiss(),
    commands.Note(body=b"{}"),
    commands.LapseLease(process="p1"),
    commands.LapseQueue(),
    commands.Revive(process="p1"),
    commands.Tick(),
    commands.CountAnew(),
)


GOING_ON: tuple[Command, ...] = (
    commands.Deliver(process="p1", heartbeat_ms=10_000),
    commands.Acknowledge(attempt=1),
    commands.Block(attempt=1, body=b"{}"),
    commands.AnswerQuestion(question=4, body=b"{}"),
    commands.Tick(),
)
TOO_LATE: tuple[Command, ...] = (
    commands.Complete(attempt=1, body=b"{}"),
    commands.AcceptLate(successor="h2"),
)


def test_the_list_of_commands_is_whole() -> None:
    kinds = {type(command) for command in EVERY_COMMAND}
    assert kinds | {commands.Offer} == set(Command.__args__) == set(decisions.MEANING)


timers = st.builds(
    Timer,
    name=st.sampled_from(ClockName),
    at=st.integers(0, 9),
    length_ms=st.just(1),
    step=st.none() | st.integers(0, 2),
)


@given(
    st.lists(timers, unique_by=lambda t: (t.name, t.step)).map(tuple),
    st.lists(timers, unique_by=lambda t: (t.name, t.step), max_size=3),
)
def test_a_clock_takes_the_place_of_its_namesake(
    running: tuple[Timer, ...], added: list[Timer]
) -> None:
    assert clocks.armed(running, *added) == plain_fold.armed(running, *added)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("actor", ACTORS, ids=lambda a: a.agent)
def test_every_pair_is_decided(state: State, command: Command, actor: Actor) -> None:
    play = _in(state)
    before = play.h
    try:
        play.do(command, by=actor)
    except CallerError:
        assert play.h is before


def _does(state: State, command: Command, actor: Actor) -> bool:
    play = _in(state)
    try:
        return play.do(command, by=actor) != ()
    except CallerError:
        return False


RECIPIENTS = {
    "ack": commands.Acknowledge(attempt=1),
    "queued": commands.Acknowledge(attempt=None, queued=True),
    "update": commands.Update(attempt=1),
    "block": commands.Block(attempt=1, body=b"{}"),
    "counter": commands.Counter(attempt=1, proposal=Proposal(update_every_ms=1)),
    "reject": commands.Reject(attempt=1),
    "complete": commands.Complete(attempt=1, body=b"{}"),
    "fail": commands.Fail(attempt=1, retryable=False, code="failed"),
    "release": commands.Release(attempt=1),
    "step": commands.RecordStep(attempt=1, name="a", body=b"1"),
}
ADMITTED = {
    State.OFFERED: {"queued"},
    State.DELIVERED: {"ack", "counter", "reject", "release"},
    State.ACCEPTED: {
        "ack", "update", "block", "counter", "reject", "complete", "fail", "release", "step",
    },
    State.BLOCKED: {"ack", "update", "complete", "fail", "release", "step"},
    State.COMPLETED: set[str](),
    State.FAILED: set[str](),
    State.REJECTED: set[str](),
    State.EXPIRED: set[str](),
    State.CANCELLED: set[str](),
}  # fmt: skip


@pytest.mark.parametrize("state", list(State))
def test_the_recipient_may_do_exactly_this(state: State) -> None:
    admitted = {name for name, command in RECIPIENTS.items() if _does(state, command, RECIPIENT)}
    assert admitted == ADMITTED[state]


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("actor", [REQUESTER, OTHER, OPERATOR], ids=lambda a: a.agent)
def test_nobody_else_can_say_what_the_recipient_did(state: State, actor: Actor) -> None:
    assert not any(_does(state, command, actor) for command in RECIPIENTS.values())
