"""State in memory: the order of queues and due times, what is written behind, and the watermark."""

from random import Random
from typing import Final

import pytest
from msgspec.structs import replace

from nodrop.log import state as module
from nodrop.log.port import Mail, row_of
from nodrop.log.state import Kept, State, TeamState
from nodrop.model import events
from nodrop.model.handoff import ClockName, Handoff
from nodrop.protocol.entries import Head
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import RECIPIENT, TEAM, Story, handoff_id, offered, story

DELIVERED: Final = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)
ENDED: Final = (
    DELIVERED,
    events.Acknowledged(attempt=1, next_update_at=T0 + 1),
    events.Completed(attempt=1),
    events.Settled(),
)


class Team:
    """One team, to which commits are merged."""

    def __init__(self) -> None:
        self.state = State()
        self.own = self.state.teams[TEAM] = TeamState(Head(), watermark=0, horizon=0)

    def merge(self, *stories: Story) -> None:
        for told in stories:
            seqs: list[int] = []
            for seq, draft in enumerate(told.entries, self.own.head.seq + 1):
                seqs.append(seq)
                for reader, kind in draft.mail:
                    item = Mail(
                        seq,
                        kind,
                        draft.at,
                        draft.actor,
                        draft.type,
                        draft.handoff_id,
                        draft.version,
                    )
                    self.own.mail.append((reader, item))
            self.own.head = Head(seq=seqs[-1])
            self.state.follow(self.own, row_of(told.handoff), seqs, since=seqs[-1])


def ids(keys: list[tuple[str, str]]) -> list[int]:
    return [int(name[-12:], 16) for _, name in keys]


def test_a_queue_is_in_order_of_rank_whatever_comes_and_goes() -> None:
    chance = Random(20261118)
    team = Team()
    waiting: dict[int, tuple[int, Handoff]] = {}
    for number in range(1, 3_001):
        if waiting and chance.random() < 0.45:
            gone = chance.choice(list(waiting))
            _, handoff = waiting.pop(gone)
            team.merge(story(DELIVERED, after=handoff))
        else:
            at = T0 + chance.randrange(500)
            told = story(offered(), number=number, at=at)
            waiting[number] = (at, told.handoff)
            team.merge(told)
        if number % 50 == 0:
            expected = sorted(waiting, key=lambda n: (waiting[n][0], n))[:20]
            assert ids(team.state.claimable(TEAM, RECIPIENT, 20)) == expected


def test_what_came_back_to_a_queue_is_in_it_once() -> None:
    team = Team()
    told = story(offered())
    team.merge(told)
    taken = story(DELIVERED, after=told.handoff)
    team.merge(taken)
    assert team.state.claimable(TEAM, RECIPIENT, 10) == []
    back = story(events.Returned(reason="released", attempt=1), after=taken.handoff)
    team.merge(back)
    assert ids(team.state.claimable(TEAM, RECIPIENT, 10)) == [1]


def test_due_times_are_told_in_order_until_a_commit_says_otherwise() -> None:
    team = Team()
    stories = {n: story(offered(), number=n, at=T0 + n) for n in (3, 1, 2)}
    team.merge(*stories.values())
    later = T0 * 2
    assert ids(team.state.due(later, 2)) == [1, 2]
    assert ids(team.state.due(later, 9)) == [1, 2, 3]
    team.merge(story(*ENDED, after=stories[1].handoff))
    assert ids(team.state.due(later, 9)) == [2, 3]


def test_due_times_that_no_longer_count_take_no_memory() -> None:
    team = Team()
    told = story(offered())
    team.merge(told)
    for _ in range(5_000):
        told = story(
            events.Nudged(clock=ClockName.ACCEPT, to="x", again_at=T0 + 1, length_ms=1),
            after=told.handoff,
            at=told.handoff.stored_at + 1,
        )
        team.merge(told)
    assert len(team.state.due_times) < 2_000


def test_what_is_open_of_a_chain_is_found_with_what_began_it() -> None:
    team, first = Team(), handoff_id(2)
    began = story(offered(correlation_id=first), number=2)
    others = {n: story(offered(correlation_id=first), number=n) for n in (3, 1)}
    apart = story(offered(correlation_id=handoff_id(9)), number=4)
    team.merge(began, *others.values(), apart)
    assert ids(team.state.unfinished_of(TEAM, first)) == [1, 2, 3]
    assert ids(team.state.unfinished_of(TEAM, handoff_id(9))) == [4]
    assert team.state.unfinished_of(TEAM, handoff_id(4)) == [], "it belongs to another chain"
    team.merge(story(*ENDED[:-1], after=began.handoff))
    assert ids(team.state.unfinished_of(TEAM, first)) == [1, 3]
    team.merge(*(story(*ENDED, after=told.handoff) for told in others.values()))
    assert team.state.unfinished_of(TEAM, first) == []


# --- writing behind -----------------------------------------------------------------------------


def test_a_commit_leaves_a_few_rows_to_a_later_one() -> None:
    team = Team()
    for number in range(1, module.SLICE_ROWS_MIN):
        team.merge(story(offered(), *ENDED, number=number))
    assert not team.state.slice([TEAM]).rows
    team.merge(story(offered(), *ENDED, number=module.SLICE_ROWS_MIN))
    behind = team.state.slice([TEAM])
    assert len(behind.rows) == module.SLICE_ROWS_MIN
    assert len(behind.mail) == 2 * module.SLICE_ROWS_MIN


def test_what_is_over_is_written_first_and_what_is_open_once_it_is_far_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SLICE_ROWS_MIN", 1)
    team = Team()
    team.merge(story(offered(), number=1), story(offered(), *ENDED, number=2))
    behind = team.state.slice([TEAM])
    assert [each.row.handoff.id for each in behind.rows] == [handoff_id(2)]
    team.state.wrote(behind)
    assert team.own.watermark == 0, "the first entry is in no row yet"
    team.own.head = replace(team.own.head, seq=team.own.head.seq + module.BEHIND_ENTRIES_MAX)
    behind = team.state.slice([TEAM])
    assert [each.row.handoff.id for each in behind.rows] == [handoff_id(1)]
    team.state.wrote(behind)
    assert team.own.watermark == team.own.head.seq


def test_the_watermark_waits_for_inbox_items_too() -> None:
    team = Team()
    team.merge(story(offered(), *ENDED, number=1))
    behind = team.state.all_of(TEAM)
    without_mail = replace(behind, mail=(), watermarks=())
    team.state.wrote(without_mail)
    assert team.own.next_watermark() == 0
    assert len(team.own.mail) == 2


def test_a_row_that_changed_while_it_was_written_is_behind_again() -> None:
    team = Team()
    told = story(offered())
    team.merge(told)
    behind = team.state.all_of(TEAM)
    team.merge(story(DELIVERED, after=told.handoff))
    team.state.wrote(behind)
    [left] = team.state.all_of(TEAM).rows
    assert (left.row.handoff.version, left.applied) == (2, 2)


def test_two_slices_with_the_same_items_take_each_out_once() -> None:
    team = Team()
    team.merge(story(offered(), number=1), story(offered(), number=2))
    first, second = team.state.all_of(TEAM), team.state.all_of(TEAM)
    team.merge(story(offered(), number=3))
    team.state.wrote(first)
    team.state.wrote(second)
    assert [(reader, item.seq) for reader, item in team.own.mail] == [(RECIPIENT, 3)]


def test_written_handoffs_are_forgotten_when_there_are_many_and_unwritten_ones_never() -> None:
    state = State()
    state.teams[TEAM] = TeamState(Head(), watermark=0, horizon=0)
    for number in range(1, module.CACHED_HANDOFFS_MAX + 11):
        handoff = story(offered(), number=number).handoff
        state.admit(Kept(handoff, applied=number, trail=[number]))
    assert state.get((TEAM, handoff_id(1))) is None
    assert state.get((TEAM, handoff_id(module.CACHED_HANDOFFS_MAX + 10))) is not None


def test_a_long_trail_is_split_and_every_place_of_it_is_found() -> None:
    team = Team()
    told = story(offered())
    team.merge(told)
    for _ in range(2 * module.TRAIL_MAX):
        told = story(events.Noted(), after=told.handoff)
        team.merge(told)
    kept = team.state.get((TEAM, told.handoff.id))
    assert kept is not None
    assert len(kept.trail) <= module.TRAIL_MAX
    versions = range(1, told.handoff.version + 1)
    assert [kept.place(version) for version in versions] == list(versions)
