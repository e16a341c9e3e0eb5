"""A relay and the whole cast, each in processes of its own, for all tests of this directory."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from report import PAGE, Report
from troupe import Relay, Troupe


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def troupe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troupe]:
    folder: Path = tmp_path_factory.mktemp("troupe")
    with Troupe(folder) as running:
        yield running


@pytest.fixture(scope="session")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    with Relay(tmp_path_factory.mktemp("relay")) as running:
        yield running


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Iterator[Report]:
    """Gather what the matrix shows; print it, and keep it if nothing was left out."""
    made, began = Report(), time.monotonic()
    yield made
    capture: Any = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n\n{made.table()}\n")
    if made.complete:
        PAGE.write_text(made.page(time.monotonic() - began), encoding="utf-8")
