"""The agents of this home that joined a relay with a key of their own. Loads no cryptography."""

from pathlib import Path

import msgspec


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Which relay knows a key."""

    url: str
    """Its address, or the path of a database."""
    team: str
    agent: str
    relay_public_key: str


def read(note: Path) -> Known:
    """Return what the note beside a key says.

    Raises:
        FileNotFoundError: there is no note.
        ValueError: it is damaged.
    """
    try:
        return msgspec.json.decode(note.read_bytes(), type=Known)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{note} is damaged: {error}") from error


def joined(home: Path) -> list[Known]:
    """Return every agent of `home` whose key a relay knows.

    Raises:
        ValueError: a note is damaged.
    """
    notes = sorted((home / "keys").glob("*/*.json"))
    return [read(note) for note in notes if note.with_suffix(".pem").exists()]
