"""PORT: what a system must bring to be measured. Each is one module in `systems`.

The module is loaded by whoever looks at `ABOUT`, so it imports the libraries of a peer late, with
`foreign`: they live in an environment of their own.
"""

import importlib
import importlib.metadata
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Protocol, cast

import msgspec

from nodrop_proof.bench import systems
from nodrop_proof.bench.cycle import BlockingCycle, Cycle


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How many callers repeat the cycle at once, over how many connections."""

    callers: int
    connections: int = 1

    @property
    def name(self) -> str:
        """The load in a word or two."""
        if self.connections == 1:
            return str(self.callers)
        return f"{self.callers} on {self.connections} connections"


ONE: Final = Load(callers=1)
MANY: Final = Load(callers=64)
CROWD: Final = Load(callers=512)
APART: Final = Load(callers=64, connections=64)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say of a system."""

    title: str
    durability: str
    """What makes a step durable, with the settings that were made."""
    cycle: str
    """How the steps of the cycle are made with it."""
    ours: bool = False
    packages: tuple[str, ...] = ()
    """Distributions it needs; their versions are reported."""
    programs: tuple[str, ...] = ()
    """Programs it needs on the path."""
    telling: dict[str, tuple[str, ...]] = {}
    """Programs whose version is reported, and the command that tells it."""
    loads: tuple[Load, ...] = (ONE, MANY)


class System(Protocol):
    """One system under test."""

    ABOUT: About

    def server(self, folder: Path) -> AbstractAsyncContextManager[str]:
        """Serve with everything kept in the empty `folder`; yields the address."""
        ...

    async def work(self, address: str) -> None:
        """Be a worker that takes, acknowledges and completes, until cancelled or killed."""
        ...

    def requester(self, address: str, load: Load) -> "Requester":
        """Connect; yields what carries out one cycle."""
        ...


Requester = AbstractAsyncContextManager[Cycle] | AbstractAsyncContextManager["Blocking"]


class Blocking(msgspec.Struct, frozen=True):
    """Marks a cycle whose callers are threads: its client library blocks."""

    cycle: BlockingCycle


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a system can run in some environment."""

    versions: dict[str, str]
    missing: tuple[str, ...]


def names() -> tuple[str, ...]:
    """Return the name of every system there is."""
    return tuple(module.name.replace("_", "-") for module in pkgutil.iter_modules(systems.__path__))


def load(name: str) -> System:
    """Return a system by its name; with a dot in it, that of a module anywhere."""
    path = name if "." in name else f"{systems.__name__}.{name.replace('-', '_')}"
    module: Any = importlib.import_module(path)
    return cast("System", module)


def state(about: About) -> State:
    """Return what there is in this environment of what a system needs."""
    versions: dict[str, str] = {}
    missing: list[str] = []
    for package in about.packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    missing += [program for program in about.programs if program_path(program) is None]
    if not missing:
        versions |= {name: _version(command) for name, command in about.telling.items()}
    return State(versions=versions, missing=tuple(missing))


def _version(command: tuple[str, ...]) -> str:
    program = program_path(command[0]) or command[0]
    told = subprocess.run(  # noqa: S603  # spelled out by the systems
        [program, *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = re.search(r"\d+(\.\d+)+", told.stdout)
    return found[0] if found else "unknown"


def program_path(name: str) -> str | None:
    """Return where a program is: beside the interpreter, or on the path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def foreign(module: str) -> Any:
    """Return a module of a peer's library. No type checker sees it: it is installed elsewhere."""
    return importlib.import_module(module)


Progress = Callable[[str, int, int], None]
"""Hears what is measured next, how many measurements are done, and of how many."""
