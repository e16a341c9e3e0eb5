"""A relay that starts: ready only once clients find its credentials, and not empty without a word."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nodrop import app
from nodrop.app import serving
from nodrop.app.serving import Served

PATIENCE_SECONDS = 30


@asynccontextmanager
async def served(home: Path) -> AsyncGenerator[Served]:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serve = asyncio.create_task(app.serve(home, port=0, stop=stop, ready=ready.set_result))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.wait({serve, ready}, return_when=asyncio.FIRST_COMPLETED)
        if serve.done():
            await serve
        try:
            yield await ready
        finally:
            stop.set()
            await serve


async def readiness(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as response:
        return response.status


async def test_it_is_not_ready_before_its_credentials_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, before = serving._keep_credentials, list[tuple[int, bool]]()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the moment in question

    async def looked(*arguments: Any, url: str, **more: Any) -> Any:
        before.append((await readiness(url), (tmp_path / "credentials").exists()))
        return await keep(*arguments, url=url, **more)

    monkeypatch.setattr(serving, "_keep_credentials", looked)
    async with served(tmp_path) as told:
        assert told.credentials.exists()
        assert await readiness(told.url) == 200
    assert before == [(503, False)]


async def test_a_home_whose_database_is_gone_does_not_begin_anew_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as first:
        assert first.warnings == (), "a new home has nothing to miss"
    async with served(tmp_path) as second:
        assert second.warnings == ()
    (tmp_path / "nodrop.db").replace(tmp_path / "lost.db")
    async with served(tmp_path) as third:
        [warning] = third.warnings
        assert "nodrop restore FILE" in warning
    assert warning in caplog.text
