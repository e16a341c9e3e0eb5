"""The greatest command id of each actor: a greater one is new, without asking the file.

Most ids begin with the time they were made at, so most new ones are greater. Belongs to the event loop.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from nodrop.log.port import Key
from nodrop.log.tables import Name
from nodrop.log.work import Command

ACTORS_MAX: Final = 10_000
"""Actors whose greatest id is kept."""


class CommandIds:
    """The greatest command id of each actor, as far as the file was asked."""

    def __init__(self) -> None:
        self._greatest: dict[Key, str] = {}
        """By team and actor; empty where there is none."""

    def not_new(self, names: Iterable[Name]) -> list[Name]:
        """Return those of `names` that may be of commands that were carried out before."""
        greatest = self._greatest
        return [
            name
            for name in names
            if (known := greatest.get((name[0], name[1]))) is None or name[2] <= known
        ]

    def unknown(self, names: Iterable[Name]) -> set[Key]:
        """Return the actors of `names` whose greatest id is not known."""
        return {(team, actor) for team, actor, _ in names} - self._greatest.keys()

    def begin(self, team: str, actor: str, greatest: str) -> None:
        """Take note of the greatest id of an actor, as the file has it."""
        if len(self._greatest) >= ACTORS_MAX:
            self._greatest.clear()
        self._greatest[team, actor] = greatest

    def go_on(self, commands: Sequence[Command]) -> None:
        """Take note of commands that were carried out."""
        greatest = self._greatest
        for team, actor, command_id, _, _ in commands:
            known = greatest.get((team, actor))
            if known is not None and known < command_id:
                greatest[team, actor] = command_id

    def forget(self) -> None:
        """Forget everything: a commit failed, and nobody knows what became of it."""
        self._greatest.clear()
