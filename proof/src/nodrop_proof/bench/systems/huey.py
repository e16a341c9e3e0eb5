"""huey on SQLite: a task queue whose worker and results poll."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import CONCURRENCY, Ask
from nodrop_proof.bench.system import About, Blocking, Load, foreign

ABOUT: Final = About(
    title="huey on SQLite",
    durability="SQLite WAL, fsync=True (synchronous=FULL)",
    cycle=(
        "enqueue; the worker dequeues, which is all the acknowledgement there is, and stores the "
        "result; the requester polls. No idempotency key. Polled every 5 to 20 ms (default 0.1 s)"
    ),
    packages=("huey",),
)

_POLLING_SECONDS_MIN: Final = 0.005
_POLLING_SECONDS_MAX: Final = 0.02
_RESULT_SECONDS_MAX: Final = 30


def _tasks(path: str) -> tuple[Any, Any]:
    huey = foreign("huey").SqliteHuey(filename=path, fsync=True, timeout=_RESULT_SECONDS_MAX)

    @huey.task(name="answer")
    def answer(asked: Ask) -> Ask:
        return cycles.result(asked)

    return huey, answer


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Serve nothing: the database is a file."""
    path = str(folder / "huey.db")
    _tasks(path)
    yield path


async def work(address: str) -> None:
    """Run its consumer with threads."""
    huey, _ = _tasks(address)
    consumer = huey.create_consumer(
        workers=CONCURRENCY,
        periodic=False,
        initial_delay=_POLLING_SECONDS_MIN,
        max_delay=_POLLING_SECONDS_MAX,
    )
    consumer.start()
    await asyncio.Event().wait()


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Blocking]:
    """Open the database."""
    assert load.connections == 1, "a file"
    _, answer = _tasks(address)

    def cycle(_: str, asked: Ask) -> Any:
        return answer(asked).get(
            blocking=True, timeout=_RESULT_SECONDS_MAX, max_delay=_POLLING_SECONDS_MIN
        )

    yield Blocking(cycle)
