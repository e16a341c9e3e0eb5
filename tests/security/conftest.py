from collections.abc import AsyncGenerator

import pytest

from kit.fortress import Fortress


@pytest.fixture
async def fortress() -> AsyncGenerator[Fortress]:
    fortress = Fortress()
    await fortress.open()
    yield fortress
    await fortress.relay.stop()
