"""The log and the handoffs of a relay, page by page, through its public API."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

from nodrop.client.client import Client
from nodrop_proof.chaos import record
from nodrop_proof.chaos.check import Checker, Verdict

PAGE: Final = 500


async def log_pages(client: Client) -> AsyncGenerator[list[dict[str, Any]]]:
    """Yield the whole log, oldest entry first."""
    after = 0
    while True:
        answer = await client.call("log", {"after": after, "limit": PAGE})
        if not answer["entries"]:
            return
        yield answer["entries"]
        after = answer["after"]


async def handoff_pages(client: Client) -> AsyncGenerator[list[dict[str, Any]]]:
    """Yield every handoff there is, newest first."""
    before: str | None = None
    while True:
        fields = {"limit": PAGE} | ({"before": before} if before else {})
        views = (await client.call("list_handoffs", fields))["handoffs"]
        if not views:
            return
        yield views
        before = views[-1]["id"]


async def check(records: Path, client: Client) -> Verdict:
    """Hold what clients wrote down against the log and the handoffs of their relay."""
    checker = Checker()
    checker.read_records(record.read(records))
    async for page in log_pages(client):
        checker.read_log(page)
    async for views in handoff_pages(client):
        checker.read_shown(views)
    return checker.verdict()
