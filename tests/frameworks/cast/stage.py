"""Puts one framework of the cast to work in this process: `python -m cast.stage NAME TARGETS`."""

import asyncio
import importlib
import logging
import os
import sys

import nodrop
from nodrop import Agent

HEARTBEAT_SECONDS = 2.0
"""Short, so that a kill or a cancel is noticed soon; frameworks block their event loop longer than
one would think, and after three of these a process is taken for dead."""


async def main(name: str, targets: list[str]) -> None:
    members: list[Agent] = importlib.import_module(f"cast.{name}").members(targets)
    print(f"on stage: {os.getpid()}", flush=True)
    await nodrop.serve(*members, heartbeat_seconds=HEARTBEAT_SECONDS, grace=0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    asyncio.run(main(sys.argv[1], sys.argv[2].split(",")))
