"""Celery on RabbitMQ, with its results in Redis."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from nodrop_proof.bench import brokers
from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import CONCURRENCY, Ask
from nodrop_proof.bench.system import About, Blocking, Load, foreign

ABOUT: Final = About(
    title="Celery",
    durability=f"{brokers.RABBITMQ_DURABILITY}; results: {brokers.REDIS_DURABILITY}",
    cycle=(
        "`apply_async`; the worker (64 threads) tells that it started, stores the result and acks "
        "late; the requester blocks in `get`. No idempotency key"
    ),
    packages=("celery", "redis"),
    programs=(brokers.RABBITMQ, brokers.EPMD, brokers.REDIS),
    telling=brokers.RABBITMQ_TELLING | brokers.REDIS_TELLING,
)

_RESULT_SECONDS_MAX: Final = 30

server = brokers.both


def _task(address: str) -> tuple[Any, Any]:
    broker, backend = brokers.apart(address)
    app = foreign("celery").Celery("bench", broker=broker, backend=backend, set_as_current=False)
    app.conf.update(
        broker_transport_options={"confirm_publish": True},
        task_acks_late=True,
        task_track_started=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
    )

    @app.task(name="answer")
    def answer(asked: Ask) -> Ask:
        return cycles.result(asked)

    return app, answer


async def work(address: str) -> None:
    """Run its worker with threads."""
    app, _ = _task(address)
    command = ["worker", "--pool=threads", f"--concurrency={CONCURRENCY}", "--loglevel=ERROR"]
    quiet = ["--without-gossip", "--without-mingle"]
    threading.Thread(target=app.worker_main, args=([*command, *quiet],), daemon=True).start()
    await asyncio.Event().wait()


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Blocking]:
    """Connect an application per thread: waiting for results is not shared between threads."""
    assert load.connections == 1, "one per thread"
    own = threading.local()

    def cycle(_: str, asked: Ask) -> Any:
        if not hasattr(own, "task"):
            own.task = _task(address)[1]
        return own.task.apply_async((asked,)).get(timeout=_RESULT_SECONDS_MAX, interval=0.005)

    yield Blocking(cycle)
