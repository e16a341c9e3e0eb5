"""The SQLite store: `Database` on a thread of its own, with the port's promises.

Two things keep them cheaply. Units of work take turns (a lock), and gather what they append in
memory; the thread then writes it in one go. So nothing is ever half written where a reader could
see it, a block that raises has nothing to undo, and a unit of work costs two visits to the thread:
one to load and one to commit.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

import apsw
from msgspec.structs import replace

from nodrop.core.contract import Agent
from nodrop.core.errors import StoreUnavailableError
from nodrop.core.model import Handoff
from nodrop.store import (
    Changes,
    Horizon,
    Key,
    Loaded,
    LogPage,
    Mail,
    Page,
    Process,
    Team,
    Token,
    Wanted,
)
from nodrop.stores.sqlite.connection import translated
from nodrop.stores.sqlite.database import Database
from nodrop.wire.log import Entry, Head

T = TypeVar("T")
P = ParamSpec("P")
