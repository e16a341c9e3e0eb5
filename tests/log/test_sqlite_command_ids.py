"""Command ids that need not be looked up: none that was used is ever taken for new."""

from collections.abc import Iterable
from pathlib import Path
from random import Random

import apsw
import pytest

from kit.inline import InlineSQLiteStore
from nodrop.log.port import Changes, Place, Team, Wanted
from nodrop.log.sqlite import store as module
from nodrop.log.tables import Name
from nodrop.log.work import Commit
from nodrop.model.errors import StoreUnavailableError
from nodrop.protocol.entries import Draft
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM

ENDS = ("", "z", "Z", "\u00e9", "\ue000", "\U0001f642")


async def opened(path: Path) -> InlineSQLiteStore:
    store = InlineSQLiteStore(path)
    await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
    return store


def noted(command_id: str, actor: str = "ana") -> Draft:
    return Draft(team=TEAM, at=T0, type="team.noted.v1", actor=actor, command_id=command_id)


async def carry_out(store: InlineSQLiteStore, *command_ids: str, actor: str = "ana") -> list[bool]:
    """Carry out commands as a relay does; return for each whether it was carried out before."""
    names = [(TEAM, actor, command_id) for command_id in command_ids]
    async with store.transaction() as tx:
        found = (await tx.load(Wanted(commands=names))).commands
        new = [noted(name[2], actor) for name in names if name not in found]
        await tx.append(Changes(entries=new))
    return [name in found for name in names]


def looked_up(monkeypatch: pytest.MonkeyPatch, store: InlineSQLiteStore) -> list[str]:
    """Return what grows with every id that the file is asked for."""
    asked: list[str] = []
    as_it_is = store.database.commands

    def commands(wanted: Iterable[Name]) -> dict[Name, list[Place]]:
        names = list(wanted)
        asked.extend(name[2] for name in names)
        return as_it_is(names)

    monkeypatch.setattr(store.database, "commands", commands)
    return asked


async def test_an_id_beyond_all_of_its_actor_is_new_without_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path / "nodrop.db")
    assert await carry_out(store, "b") == [False]
    asked = looked_up(monkeypatch, store)
    assert await carry_out(store, "c", "d") == [False, False]
    assert asked == []
    assert await carry_out(store, "c", "e", "a") == [True, False, False]
    assert asked == ["c", "a"]
    assert await carry_out(store, "a", "e") == [True, True]


async def test_what_was_used_is_found_whatever_the_order(tmp_path: Path) -> None:
    chance = Random(20261119)
    store = await opened(tmp_path / "nodrop.db")
    used: set[tuple[str, str]] = set()
    for number in range(400):
        actor = chance.choice(["ana", "bo", "carl"])
        # Around each other in length, case, and beyond 16 bits; rising on the whole, like times.
        made = [number - chance.randrange(40) for _ in range(chance.randrange(1, 4))]
        ids = sorted(
            {f"{at:04}{chance.choice(ENDS)}" for at in made}, key=lambda _: chance.random()
        )
        expected = [(actor, each) in used for each in ids]
        assert await carry_out(store, *ids, actor=actor) == expected
        used |= {(actor, each) for each in ids}
        if number % 100 == 99:
            store.crash()
            store = await opened(tmp_path / "nodrop.db")


async def test_ids_of_a_commit_of_which_nobody_knows_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path / "nodrop.db")
    assert await carry_out(store, "a") == [False]
    as_it_is = store.database.write

    def kept_and_failed(commit: Commit) -> None:
        as_it_is(commit)
        raise apsw.IOError("the answer is lost")

    with monkeypatch.context() as faulty:
        faulty.setattr(store.database, "write", kept_and_failed)
        with pytest.raises(StoreUnavailableError):
            await carry_out(store, "b")
    assert await carry_out(store, "b") == [True]


async def test_of_many_actors_some_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ACTORS_MAX", 3)
    store = await opened(tmp_path / "nodrop.db")
    actors = [f"agent-{number}" for number in range(10)]
    for actor in actors:
        assert await carry_out(store, "m", actor=actor) == [False]
    for actor in actors:
        assert await carry_out(store, "m", "a", "z", actor=actor) == [True, False, False]
