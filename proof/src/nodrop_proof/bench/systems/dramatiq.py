"""Dramatiq on RabbitMQ, with its results in Redis."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from nodrop_proof.bench import brokers
from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import CONCURRENCY, Ask
from nodrop_proof.bench.system import About, Blocking, Load, foreign

ABOUT: Final = About(
    title="Dramatiq",
    durability=f"{brokers.RABBITMQ_DURABILITY}; results: {brokers.REDIS_DURABILITY}",
    cycle=(
        "`send`; the worker (64 threads) stores the result and acks, which is all the "
        "acknowledgement there is; the requester blocks in `get_result`. No idempotency key"
    ),
    packages=("dramatiq", "pika", "redis"),
    programs=(brokers.RABBITMQ, brokers.EPMD, brokers.REDIS),
    telling=brokers.RABBITMQ_TELLING | brokers.REDIS_TELLING,
)

_RESULT_MS_MAX: Final = 30_000

server = brokers.both


def _actor(address: str) -> tuple[Any, Any]:
    dramatiq: Any = foreign("dramatiq")
    broker_url, backend_url = brokers.apart(address)
    broker = foreign("dramatiq.brokers.rabbitmq").RabbitmqBroker(
        url=broker_url, confirm_delivery=True
    )
    backend = foreign("dramatiq.results.backends").RedisBackend(url=backend_url)
    broker.add_middleware(foreign("dramatiq.results").Results(backend=backend))
    dramatiq.set_broker(broker)

    @dramatiq.actor(store_results=True, max_retries=0)
    def answer(asked: Ask) -> Ask:
        return cycles.result(asked)

    return broker, answer


async def work(address: str) -> None:
    """Run its worker with threads."""
    broker, _ = _actor(address)
    foreign("dramatiq").Worker(broker, worker_threads=CONCURRENCY).start()
    await asyncio.Event().wait()


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Blocking]:
    """Connect its broker and its backend."""
    assert load.connections == 1, "it has a connection per thread by itself"
    _, answer = _actor(address)

    def cycle(_: str, asked: Ask) -> Any:
        return answer.send(asked).get_result(block=True, timeout=_RESULT_MS_MAX)

    yield Blocking(cycle)
