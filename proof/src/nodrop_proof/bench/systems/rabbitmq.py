"""RabbitMQ with aio-pika. Every step is a persistent message that the broker has confirmed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from nodrop_proof.bench import brokers
from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import CONCURRENCY, Ask, Cycle
from nodrop_proof.bench.system import About, Load, foreign

ABOUT: Final = About(
    title="RabbitMQ",
    durability=brokers.RABBITMQ_DURABILITY,
    cycle=(
        "publish to a queue; the worker publishes `accepted` and then the outcome, each confirmed, "
        "and acks; the requester consumes the outcomes. No idempotency key. What is "
        "consumed before it was written may be confirmed unsynced"
    ),
    packages=("aio-pika",),
    programs=(brokers.RABBITMQ, brokers.EPMD),
    telling=brokers.RABBITMQ_TELLING,
)

_OFFERS: Final = "offers"
_ACKS: Final = "acks"
_OUTCOMES: Final = "outcomes"

server = brokers.rabbitmq


class _Channel:
    """A channel with confirms, on a connection of its own, and the queues declared."""

    def __init__(self, pika: Any, channel: Any) -> None:
        self._pika = pika
        self._channel = channel

    @classmethod
    async def open(cls, address: str) -> "_Channel":
        pika: Any = foreign("aio_pika")
        channel = await (await pika.connect(address)).channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=CONCURRENCY)
        for name in (_OFFERS, _ACKS, _OUTCOMES):
            await channel.declare_queue(name, durable=True)
        return cls(pika, channel)

    async def publish(self, queue: str, body: Any) -> None:
        mode = self._pika.DeliveryMode.PERSISTENT
        message = self._pika.Message(msgspec.json.encode(body), delivery_mode=mode)
        await self._channel.default_exchange.publish(message, routing_key=queue)

    async def consume(self, queue: str, take: Any, *, no_ack: bool) -> None:
        declared = await self._channel.get_queue(queue)
        await declared.consume(take, no_ack=no_ack)


async def work(address: str) -> None:
    """Take, acknowledge and complete."""
    channel = await _Channel.open(address)

    async def take(message: Any) -> None:  # the client makes a task of each
        asked: Ask = msgspec.json.decode(message.body)
        await channel.publish(_ACKS, {"key": asked["key"]})
        await channel.publish(_OUTCOMES, cycles.result(asked))
        await message.ack()

    await channel.consume(_OFFERS, take, no_ack=False)
    await asyncio.Event().wait()


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Connect once, for all callers."""
    assert load.connections == 1, "one connection carries all"
    channel = await _Channel.open(address)
    waiting: dict[str, asyncio.Future[Any]] = {}

    async def arrived(message: Any) -> None:
        answer = msgspec.json.decode(message.body)
        future = waiting.get(answer["key"])
        if future is not None:
            future.set_result(answer)

    await channel.consume(_OUTCOMES, arrived, no_ack=True)

    async def cycle(key: str, asked: Ask) -> Any:
        future = waiting[key] = asyncio.get_running_loop().create_future()
        try:
            await channel.publish(_OFFERS, asked)
            return await future
        finally:
            del waiting[key]

    yield cycle
