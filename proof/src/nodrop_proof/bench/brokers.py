"""RabbitMQ and Redis, for the peers that need them. As they come, but for what is said here."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from nodrop_proof.bench.processes import free_port, listening, program
from nodrop_proof.bench.system import program_path

RABBITMQ: Final = "rabbitmq-server"
REDIS: Final = "redis-server"
EPMD: Final = "epmd"
# `rabbitmqctl version` would leave a daemon behind; the folder's name has it too.
RABBITMQ_TELLING: Final = {RABBITMQ: ("ls", "/usr/lib/rabbitmq/lib")}
REDIS_TELLING: Final = {REDIS: (REDIS, "--version")}
RABBITMQ_DURABILITY: Final = "RabbitMQ, durable queues, persistent messages, publisher confirms"
REDIS_DURABILITY: Final = "Redis, appendonly, appendfsync always"

_SCRIPT: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The server itself. The one on the path changes to a user of its own, who owns other folders."""


@asynccontextmanager
async def rabbitmq(folder: Path) -> AsyncGenerator[str]:
    """Run a fresh RabbitMQ; yields its address."""
    port, control, names = free_port(), free_port(), free_port()
    settings = folder / "rabbitmq.conf"
    settings.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    (folder / "plugins").write_text("[].\n")
    environment = {
        "HOME": str(folder),  # its cookie goes there
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_DIST_PORT": str(control),
        "RABBITMQ_CONFIG_FILE": str(settings),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "rabbitmq"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_LOGS": "-",
    }
    server = _SCRIPT if _SCRIPT.exists() else _found(RABBITMQ)
    async with (
        program(_found(EPMD), "-port", str(names), log=folder / "epmd.log"),
        program(server, log=folder / "rabbitmq.log", environment=environment),
    ):
        await listening(port)
        yield f"amqp://guest:guest@127.0.0.1:{port}/"


@asynccontextmanager
async def redis(folder: Path) -> AsyncGenerator[str]:
    """Run a fresh Redis; yields its address."""
    port = free_port()
    settings = {
        "--bind": "127.0.0.1",
        "--port": str(port),
        "--dir": str(folder),
        "--save": "",
        "--appendonly": "yes",
        "--appendfsync": "always",
    }
    arguments = [part for setting in settings.items() for part in setting]
    async with program(_found(REDIS), *arguments, log=folder / "redis.log"):
        await listening(port)
        yield f"redis://127.0.0.1:{port}/0"


@asynccontextmanager
async def both(folder: Path) -> AsyncGenerator[str]:
    """Run both; yields their addresses in one string, see `apart`."""
    async with rabbitmq(folder) as broker, redis(folder) as backend:
        yield f"{broker} {backend}"


def apart(address: str) -> tuple[str, str]:
    """Return the addresses of RabbitMQ and of Redis."""
    broker, backend = address.split(" ")
    return broker, backend


def _found(name: str) -> str:
    path = program_path(name)
    assert path is not None, "looked for before"
    return path
