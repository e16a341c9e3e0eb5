import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from nodrop import app
from nodrop_proof.chaos.relay_process import ServedRelay


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncGenerator[ServedRelay]:
    """A relay in this process, whose parts a test can take out."""
    up: asyncio.Future[app.Served] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    home = tmp_path / "home"
    serving = asyncio.create_task(app.serve(home, port=0, ready=up.set_result, stop=stop))
    yield ServedRelay(home, (await up).url)
    stop.set()
    await serving
