import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nodrop.client.transports import websocket
from nodrop_proof.kit.postgres_server import PostgresServer

# What gRPC does at a fork of this process ends PostgreSQL's programs, which are started as another
# user and therefore by one. Read when grpc is imported.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# A shell's background jobs ignore interrupts, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How fast this machine is says nothing of what is tested.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Below the limit of pytest-timeout, so that a hanging command is reported with what it printed.
COMMAND_SECONDS_MAX = 45
PATIENCE_SECONDS = 30.0


@pytest.fixture
def anyio_backend() -> str:
    """Nodrop runs on asyncio alone."""
    return "asyncio"


@pytest.fixture(autouse=True)
def patient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait for a relay that is there, however long this process is kept from running."""
    monkeypatch.setattr(websocket, "FIRST_SECONDS_MAX", PATIENCE_SECONDS)


@pytest.fixture
def run_alone(tmp_path: Path) -> Callable[[Sequence[str | Path]], str]:
    """Run a command as a new user would: an empty directory, an empty home, `nodrop` on the path.

    Returns what the command printed; fails when it fails.
    """
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("NODROP_")
    }
    environment = inherited | {
        "NODROP_HOME": str(tmp_path),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }

    def run(command: Sequence[str | Path]) -> str:
        with subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                printed, complaints = process.communicate(timeout=COMMAND_SECONDS_MAX)
            finally:
                # The whole group: a relay the command left running must not outlive the test.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"exit {process.returncode}\n{printed}\n{complaints}"
        return printed

    return run


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL, one for all tests of a process. That it is missing is a failure."""
    # A crash of the machine is not what these tests are about: what was committed is read back
    # from the same server. Nor is what a server does by itself, at times of its own choosing: tests
    # look at plans, and at who waits for which lock.
    settings = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}
    with PostgresServer(settings=settings) as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """An empty database; returns its address. What the test before left in it is gone."""
    tables = postgres.run(_TABLES)
    if tables.strip():
        postgres.run(f"truncate {tables}")
    return postgres.address()


_TABLES = """
    select string_agg(quote_ident(tablename), ', ') from pg_tables
    where schemaname = 'public' and tablename <> 'nodrop_schema'
"""
