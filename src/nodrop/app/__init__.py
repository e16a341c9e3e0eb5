"""The composition root: the only package that knows the concrete parts, the clock and the ids.

`open_relay` is a relay on a database; `listening` opens the networked doors before one; `serve` is
both, as `nodrop up` runs them; `open_embedded` is a relay inside the caller's own process.
"""

from nodrop.app.database import DATABASE, MEMORY, is_address, migrate, without_password
from nodrop.app.doors import A2A, HOST, listening
from nodrop.app.embedded import open_embedded
from nodrop.app.machine import KeyFile, SystemClock, SystemIds
from nodrop.app.relay import PERSON, TEAM, open_relay
from nodrop.app.running import run
from nodrop.app.schema_files import schemas, write_schemas
from nodrop.app.serving import PORT, RETENTION, Served, serve
from nodrop.servers.listener.server import TLS

__all__ = [
    "A2A",
    "DATABASE",
    "HOST",
    "MEMORY",
    "PERSON",
    "PORT",
    "RETENTION",
    "TEAM",
    "TLS",
    "KeyFile",
    "Served",
    "SystemClock",
    "SystemIds",
    "is_address",
    "listening",
    "migrate",
    "open_embedded",
    "open_relay",
    "run",
    "schemas",
    "serve",
    "without_password",
    "write_schemas",
]
