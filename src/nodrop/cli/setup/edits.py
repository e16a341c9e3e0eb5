"""What is written into somebody's files, and taken out again: text in, text out, no disk.

Everything else in those files is the user's: unknown keys, their order and the indentation of JSON
are kept, and a block among lines has marks around it.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final, Protocol, cast

import msgspec

from nodrop.model.errors import InvalidRequestError, Problem

_INDENT: Final = 2
_INDENTED: Final = re.compile(r"^[{\[]\r?\n([ \t]+)")


class Edit(Protocol):
    """One file, and what we have in it."""

    @property
    def path(self) -> Path:
        """Where it is."""
        ...

    def added(self, text: str | None) -> str:
        """Return the file with our part in it, in its current form; None: there was no file."""
        ...

    def removed(self, text: str) -> str | None:
        """Return the file without our part; None: nothing else was in it."""
        ...


class OwnFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is all ours."""

    path: Path
    content: str

    def added(self, text: str | None) -> str:  # noqa: ARG002  # of the protocol
        """Return our content."""
        return self.content

    def removed(self, text: str) -> str | None:
        """Return nothing, unless the user wrote something else into it."""
        return None if text == self.content else text


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Lines between two marks, at the end of a file with lines of the user's."""

    path: Path
    content: str
    begin: str
    end: str

    def added(self, text: str | None) -> str:
        """Return the file with the block at its end, once."""
        before = "" if text is None else self._without(text)
        if self.path.suffix == ".toml":
            _check_toml(before, self.path, "is not TOML", "Correct it, then try again.")
        if before and not before.endswith("\n"):
            before += "\n"
        gap = "\n" if before else ""
        made = f"{before}{gap}{self.begin}\n{self.content.rstrip()}\n{self.end}\n"
        if self.path.suffix == ".toml":
            next_step = (
                "It may have a server called nodrop already: remove that one, then try again."
            )
            _check_toml(made, self.path, "would no longer be TOML", next_step)
        return made

    def removed(self, text: str) -> str | None:
        """Return the file without the block."""
        return self._without(text) or None

    def _without(self, text: str) -> str:
        marked = rf"\n?{re.escape(self.begin)}\n.*?{re.escape(self.end)}\n?"
        return re.sub(marked, "", text, flags=re.DOTALL)


def _check_toml(text: str, path: Path, why: str, next_step: str) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = Problem(path=str(path), message=str(error))
        raise InvalidRequestError(
            f"the file {why}", next_step=next_step, errors=(problem,)
        ) from error


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A value in JSON. In a list it is the one element that contains `known_by`."""

    keys: tuple[str, ...]
    value: Any
    known_by: str | None = None
    frame: bool = False
    """The document must have it, whoever else is in it: the user's own counts, and ours stays for it."""


class JsonFile(msgspec.Struct, frozen=True, kw_only=True):
    """Entries in a JSON document of the user's."""

    path: Path
    entries: tuple[Entry, ...]

    def added(self, text: str | None) -> str:
        """Return the document with our entries."""
        document = {} if text is None or not text.strip() else self._read(text)
        for entry in self.entries:
            *parents, last = entry.keys
            place = document
            for key in parents:
                place = self._object(place.setdefault(key, {}), key)
            if entry.frame:
                place.setdefault(last, entry.value)
            elif entry.known_by is None:
                place[last] = entry.value
            else:
                kept = _others(self._list(place.setdefault(last, []), last), entry.known_by)
                place[last] = [*kept, entry.value]
        return _written(document, text)

    def removed(self, text: str) -> str | None:
        """Return the document without our entries, and without what only they were in."""
        document = self._read(text)
        for entry in self.entries:
            if not entry.frame:
                _remove(document, entry)
        if document == self._read(text):
            return text  # nothing of ours is in it
        frame = {entry.keys[0] for entry in self.entries if entry.frame}
        return _written(document, text) if document.keys() - frame else None

    def _read(self, text: str) -> dict[str, Any]:
        try:
            return self._object(json.loads(text), "the document")
        except ValueError as error:
            raise self._refusal(f"is not plain JSON: {error}") from error

    def _object(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._refusal(f"{key} is no object")
        return cast("dict[str, Any]", value)

    def _list(self, value: Any, key: str) -> list[Any]:
        if not isinstance(value, list):
            raise self._refusal(f"{key} is no list")
        return cast("list[Any]", value)

    def _refusal(self, why: str) -> InvalidRequestError:
        ours: dict[str, Any] = {}
        for entry in self.entries:
            place = ours
            for key in entry.keys[:-1]:
                place = place.setdefault(key, {})
            place[entry.keys[-1]] = entry.value if entry.known_by is None else [entry.value]
        return InvalidRequestError(
            "the file is left as it is",
            next_step=f"Put this into it by hand: {json.dumps(ours)}",
            errors=(Problem(path=str(self.path), message=why),),
        )


def _others(elements: list[Any], known_by: str) -> list[Any]:
    return [element for element in elements if known_by not in json.dumps(element)]


def _remove(document: dict[str, Any], entry: Entry) -> None:
    places: list[dict[str, Any]] = [document]
    for key in entry.keys[:-1]:
        inner = places[-1].get(key)
        if not isinstance(inner, dict):
            return
        places.append(cast("dict[str, Any]", inner))
    last = entry.keys[-1]
    found = places[-1].get(last)
    if entry.known_by is None or not isinstance(found, list):
        places[-1].pop(last, None)
    elif kept := _others(cast("list[Any]", found), entry.known_by):
        places[-1][last] = kept
    else:
        places[-1].pop(last)
    for place, key in zip(reversed(places[:-1]), reversed(entry.keys[:-1]), strict=True):
        if not place[key]:
            del place[key]


def _written(document: dict[str, Any], like: str | None) -> str:
    """Return JSON that is indented, and ends, as the text before did."""
    found = _INDENTED.match(like or "")
    indent = found[1] if found else _INDENT
    end = "" if like and not like.endswith("\n") else "\n"
    return json.dumps(document, indent=indent, ensure_ascii=False) + end
