"""Nodrop on PostgreSQL, one node, requester over HTTP with an ordinary client."""

from typing import Final

from nodrop_proof.bench import ours, postgres
from nodrop_proof.bench.system import About
from nodrop_proof.bench.systems import nodrop_postgres

ABOUT: Final = About(
    title="Nodrop on PostgreSQL, HTTP",
    durability=postgres.DURABILITY,
    cycle="as over HTTP on SQLite; the store is the same PostgreSQL that the peers have",
    ours=True,
    packages=(*ours.PACKAGES, "asyncpg", postgres.PACKAGE),
)

server = nodrop_postgres.server
work = ours.work
requester = ours.over_http
