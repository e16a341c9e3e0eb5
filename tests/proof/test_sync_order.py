"""No answer leaves before the sync of its commit; and how that is counted."""

from pathlib import Path

import pytest

from nodrop_proof.chaos.in_process import ANSWER_BEFORE_SYNC, SYNCHRONOUS_NORMAL
from nodrop_proof.sync_order import Load, What, count, happenings_of, in_process

HANDOFFS = 60
ANSWERS = 2 * HANDOFFS * Load.COMMANDS
"""One by one, and as many at once."""

ONE, TWO = b"ndmark-1-end", b"ndmark-2-end"
SYNC = [(What.SYNCING, b""), (What.SYNCED, b"")]


@pytest.mark.parametrize("seed", range(4))
async def test_no_answer_leaves_before_the_sync_of_its_commit(tmp_path: Path, seed: int) -> None:
    order = await in_process(tmp_path, handoffs=HANDOFFS, pairs=8, seed=seed)
    assert order.answers == ANSWERS
    assert order.early == 0
    assert HANDOFFS * Load.COMMANDS < order.commits < ANSWERS  # some of them shared one


@pytest.mark.parametrize("control", [SYNCHRONOUS_NORMAL, ANSWER_BEFORE_SYNC])
async def test_a_relay_that_does_not_wait_for_the_sync_is_seen_to_answer_early(
    tmp_path: Path, control: str
) -> None:
    order = await in_process(tmp_path, handoffs=10, pairs=4, controls=frozenset({control}))
    assert order.answers == 10 * 2 * Load.COMMANDS
    assert order.early > order.answers / 2


# --- counting ---


def test_an_answer_after_the_sync_of_its_write_is_in_time() -> None:
    order = count([(What.WRITTEN, b"page " + ONE), *SYNC, (What.SENT, b"HTTP/1.1 201 " + ONE)])
    assert (order.answers, order.early, order.commits) == (1, 0, 1)


def test_an_answer_whose_write_was_never_seen_is_early() -> None:
    assert count([*SYNC, (What.SENT, ONE)]).early == 1


def test_a_sync_that_began_before_the_write_does_not_cover_it() -> None:
    happenings = [(What.SYNCING, b""), (What.WRITTEN, ONE), (What.SYNCED, b""), (What.SENT, ONE)]
    assert count(happenings).early == 1


def test_a_sync_that_has_not_ended_does_not_count() -> None:
    happenings = [(What.WRITTEN, ONE), (What.SYNCING, b""), (What.SENT, ONE), (What.SYNCED, b"")]
    assert count(happenings).early == 1


def test_each_answer_needs_the_sync_of_its_own_commit() -> None:
    happenings = [
        (What.WRITTEN, ONE),
        *SYNC,
        (What.WRITTEN, TWO),
        (What.SENT, ONE),
        (What.SENT, TWO),
        *SYNC,
    ]
    order = count(happenings)
    assert (order.answers, order.early) == (2, 1)


def test_what_is_sent_again_is_no_second_answer() -> None:
    order = count([(What.WRITTEN, ONE), *SYNC, (What.SENT, ONE), (What.SENT, ONE)])
    assert order.answers == 1


# --- reading a trace ---

TRACE = rb"""
41    pwrite64(9</home/nodrop.db-wal>, "\0\0\1 ndmark-1-end \7", 4096, 56) = 4096
41    fdatasync(9</home/nodrop.db-wal>) = 0
40    write(14<socket:[7]>, "HTTP/1.1 201 Created ndmark-1-end", 33) = 33
41    pwrite64(9</home/nodrop.db-wal>, "ndmark-2-end", 4096, 4152 <unfinished ...>
40    write(1<pipe:[3]>, "ndmark-2-end in a pipe", 22) = 22
41    <... pwrite64 resumed>)           = 4096
41    fdatasync(9</home/nodrop.db-wal> <unfinished ...>
40    fsync(8</home/nodrop.db>)         = 0
40    writev(14<socket:[7]>, [{iov_base="ndmark-2-end", iov_len=12}], 1) = 12
41    <... fdatasync resumed>)          = 0
41    pwrite64(9</home/nodrop.db-wal>, "ndmark-3-end", 4096, 8248) = 4096
41    fdatasync(9</home/nodrop.db-wal>) = -1 EIO (Input/output error)
40    sendto(14<socket:[7]>, "ndmark-3-end", 12, 0, NULL, 0) = 12
40    +++ exited with 0 +++
""".lstrip()


def test_a_trace_is_read_in_the_order_in_which_it_happened() -> None:
    happened = [what for what, _ in happenings_of(TRACE.splitlines(keepends=True))]
    assert happened == [
        *(What.WRITTEN, What.SYNCING, What.SYNCED, What.SENT),
        *(What.WRITTEN, What.SYNCING, What.SENT, What.SYNCED),
        *(What.WRITTEN, What.SYNCING, What.SENT),
    ]


def test_the_early_answers_of_a_trace_are_counted() -> None:
    order = count(happenings_of(TRACE.splitlines(keepends=True)))
    # The second left while its sync was under way, the sync of the third failed.
    assert (order.answers, order.early) == (3, 2)
