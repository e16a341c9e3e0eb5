"""A relay and the whole cast, each in processes of its own, for all tests of this directory."""

import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

import nodrop

sys.path.insert(0, str(Path(__file__).parent))

from inside import ADDRESS
from report import PAGE, Report
from troupe import Relay, Troupe


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def me(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[nodrop.Client]:
    """Whoever hands off at a relay in this process; it lives as long as this is connected."""
    monkeypatch.setenv("NODROP_HOME", str(tmp_path))
    async with nodrop.connect(ADDRESS, agent="boss") as client:
        yield client


@pytest.fixture(scope="session")
def troupe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troupe]:
    folder: Path = tmp_path_factory.mktemp("troupe")
    with Troupe(folder) as running:
        yield running


@pytest.fixture(scope="session")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    with Relay(tmp_path_factory.mktemp("relay")) as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def report(pytestconfig: pytest.Config) -> Iterator[Report]:
    """Gather what the matrix shows; print it, and keep it if nothing was left out."""
    made, began = Report(), time.monotonic()
    yield made
    if made.cells:
        capture: Any = pytestconfig.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\n\n{made.table()}\n\n{made.feats()}\n")
    if made.complete:
        PAGE.write_text(made.page(time.monotonic() - began), encoding="utf-8")
