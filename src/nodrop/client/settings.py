"""Where the relay is and who is asking: flags, then environment, then `nodrop.toml`, then home."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import platformdirs

from nodrop.client.auth.credentials import CredentialsFile
from nodrop.client.auth.joined import joined
from nodrop.client.transports.address import Remote, parse

URL: Final = "http://127.0.0.1:6377"
"""Where `nodrop up` listens unless told otherwise: N-D-R-P on a phone."""

FILE: Final = "nodrop.toml"

Address = str | os.PathLike[str]
CaFile = str | os.PathLike[str]
"""Certificates of the CAs to trust (PEM)."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a client goes by."""

    address: str
    """`http(s)://`, `ws(s)://`, the path of a database, or `:memory:`."""
    agent: str | None
    """None: whoever the token belongs to."""
    token: str | None
    team: str | None
    """None: the team of the token."""
    home: Path
    joined: bool = False
    """Whether `agent` is the only one that this home can be: it joined, and no operator is here."""
    ca: Path | None = None
    """Certificates of the CAs that the relay's may be signed by; None: those that the system trusts."""


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a relay sends its checkpoints, and how often."""

    to: str
    """A file, or an address that they are posted to."""
    every: str = "1h"
    """How often."""


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `nodrop.toml` may say. `docs/configuration.md` is made from this."""

    url: str | None = None
    """Address of the relay, or the path of a database."""
    agent: str | None = None
    """Who is asking."""
    team: str | None = None
    """The agent's team, if not that of its token."""
    token: str | None = None
    """The agent's token."""
    home: str | None = None
    """Directory of database, credentials and keys."""
    ca: str | None = None
    """Certificates (PEM) of the CAs to trust instead of the system's."""
    retention: str | None = None
    """How long `nodrop up` keeps what is settled: a duration, or "never" to keep everything."""
    triggers: list[dict[str, Any]] | None = None
    """Rules of the relay that `nodrop up` starts in this directory (docs/coordination.md)."""
    checkpoints: Checkpoints | None = None
    """Where that relay sends signed checkpoints of its log (docs/observability.md)."""


def variable(name: str) -> str:
    """Return the environment variable that says the same as a key of `nodrop.toml`."""
    return f"NODROP_{name.upper()}"


def written_triggers(directory: Path | None = None) -> list[dict[str, Any]] | None:
    """Return the rules in `nodrop.toml`; None: it says nothing about any.

    Raises:
        ValueError: the file cannot be read.
    """
    return _read(directory or Path.cwd()).triggers


def written_checkpoints(directory: Path | None = None) -> Checkpoints | None:
    """Return what `nodrop.toml` says about checkpoints, if it does.

    Raises:
        ValueError: the file cannot be read.
    """
    return _read(directory or Path.cwd()).checkpoints


def written_retention(directory: Path | None = None) -> str | None:
    """Return how long `nodrop.toml` has settled handoffs kept, if it says so.

    Raises:
        ValueError: the file cannot be read.
    """
    return _read(directory or Path.cwd()).retention


def load(
    address: Address | None = None,
    *,
    agent: str | None = None,
    token: str | None = None,
    team: str | None = None,
    home: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> Settings:
    """Return the settings for a client that was told this much.

    Raises:
        ValueError: `nodrop.toml` or the credentials cannot be read.
    """
    file = _read(directory or Path.cwd())

    def first(name: str, flag: Address | None) -> str | None:
        said = None if flag is None else os.fspath(flag)
        return said or environment.get(variable(name)) or getattr(file, name)

    token = first("token", token)
    agent = first("agent", agent)
    place = find_home(home, environment=environment, written=file.home)
    named = first("url", address)
    known = CredentialsFile(place).read()
    trusted = first("ca", ca)
    if trusted is None and named in {None, known.url}:
        trusted = known.ca
    relay = named or known.url or URL
    only = None if token or known.operator else _only_agent(place, relay)
    return Settings(
        address=relay,
        # A token says itself whose it is; without one it is the agent that joined from here, where
        # there is only one, and else the person.
        agent=agent or (None if token else only or "me"),
        joined=only is not None and agent in {None, only},
        token=token,
        team=first("team", team),
        home=place,
        ca=None if trusted is None else Path(trusted).expanduser(),
    )


def _only_agent(home: Path, address: str) -> str | None:
    """Return the only agent of `home` that joined a relay, if that relay is at `address`."""
    if not (home / "keys").is_dir():  # as with most: nothing to parse
        return None
    place = parse(address)
    agents = joined(home)
    if len(agents) != 1 or not isinstance(place, Remote) or not place.same_relay(agents[0].url):
        return None
    return agents[0].agent


def find_home(
    flag: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    written: str | None = None,
) -> Path:
    """Return the directory that holds database, credentials and keys."""
    named = flag or environment.get(variable("home")) or written
    return Path(named or platformdirs.user_data_dir("nodrop", appauthor=False)).expanduser()


def _read(directory: Path) -> File:
    path = directory / FILE
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(data, File)
    except FileNotFoundError:
        return File()
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error
