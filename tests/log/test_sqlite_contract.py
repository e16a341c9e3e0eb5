from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodrop.log.sqlite import SQLiteStore
from nodrop.testing.store_contract import StoreContract


class TestSQLiteStore(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SQLiteStore]:
        async with await SQLiteStore.open(tmp_path / "nodrop.db") as store:
            yield store
