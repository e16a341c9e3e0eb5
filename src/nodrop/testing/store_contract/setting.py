"""Where the contract's tests take place: an empty store with two teams."""

from collections.abc import Sequence
from typing import Final

import pytest

from nodrop.log.port import Changes, ConflictError, Loaded, LogPage, Store, Team, Wanted
from nodrop.protocol.entries import Draft, Entry
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM, Story

OTHER_TEAM: Final = "other"
DIGEST_KEYS: Final = {TEAM: b"\x01" * 32, OTHER_TEAM: b"\x02" * 32}

WAIT_SECONDS_MAX: Final = 30.0
"""More than any store takes; a test that waits longer is a test that fails."""


@pytest.mark.anyio
class Setting:
    """Base of the contract's parts."""

    @pytest.fixture
    def store(self) -> Store:
        """Give an empty store. Overridden by every store's own test class."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    async def teams(self, store: Store) -> None:
        """Create the two teams."""
        for name, digest_key in DIGEST_KEYS.items():
            await store.create_team(Team(id=name, digest_key=digest_key, created_at=T0))


async def commit(store: Store, *changes: Changes | Story) -> list[int]:
    """Append everything in one transaction; return the `seq`s."""
    told: list[Sequence[int]] = []
    async with store.transaction() as tx:
        for each in changes:
            appended = each.changes if isinstance(each, Story) else each
            told.append(await tx.append(appended))
    return [seq for seqs in told for seq in seqs]


async def load(store: Store, wanted: Wanted) -> Loaded:
    """Load `wanted` in a transaction of its own; once more where the store had not looked."""
    try:
        async with store.transaction() as tx:
            return await tx.load(wanted)
    except ConflictError:
        async with store.transaction() as tx:
            return await tx.load(wanted)


async def read_log(store: Store, team: str = TEAM) -> list[Entry]:
    """Return everything in a team's log."""
    return list(await store.log(LogPage(team=team, limit=1_000)))


async def entry_bodies(store: Store, seqs: Sequence[int], team: str = TEAM) -> dict[int, bytes]:
    """Return the bodies there are of entries, without their salts."""
    return {seq: found.body for seq, found in (await store.entry_bodies(team, seqs)).items()}


def noted(
    team: str = TEAM,
    *,
    actor: str = "me",
    body: bytes | None = None,
    mail: tuple[tuple[str, str], ...] = (),
) -> Draft:
    """Return an entry that is about the team and not about one handoff."""
    return Draft(team=team, at=T0, type="team.noted.v1", actor=actor, body=body, mail=mail)
