"""Nodrop, requester over HTTP with an ordinary client: a POST and a long-poll GET."""

from typing import Final

from nodrop_proof.bench import ours
from nodrop_proof.bench.system import About

ABOUT: Final = About(
    title="Nodrop, HTTP",
    durability=ours.DURABILITY,
    cycle="aiohttp: POST /v1/handoffs, then GET with `wait`; the worker is on the SDK",
    ours=True,
    packages=ours.PACKAGES,
)

server = ours.relay
work = ours.work
requester = ours.over_http
