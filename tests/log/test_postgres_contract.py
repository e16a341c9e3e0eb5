from collections.abc import AsyncIterator

import pytest

from nodrop.log.postgres import PostgresStore
from nodrop.testing.store_contract import StoreContract


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, database: str) -> AsyncIterator[PostgresStore]:
        async with await PostgresStore.open(database) as store:
            yield store
