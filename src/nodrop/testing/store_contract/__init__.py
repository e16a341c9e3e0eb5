"""What every store must do, as a test class to inherit.

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self) -> AsyncIterator[MyStore]: ...

A store that passes is a store for a relay. A behaviour that two stores disagree on is a test that
is missing here. The parts are one module each; none of them knows which store it runs on.
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{part}"
        for part in ("directory", "housekeeping", "lists", "log", "queues", "transactions")
    )
)

# After the registration, or a failing assertion would not show its values.
from nodrop.testing.store_contract.directory import DirectoryContract  # noqa: E402  # see above
from nodrop.testing.store_contract.housekeeping import HousekeepingContract  # noqa: E402  # same
from nodrop.testing.store_contract.lists import ListContract  # noqa: E402  # same
from nodrop.testing.store_contract.log import LogContract  # noqa: E402  # same
from nodrop.testing.store_contract.queues import QueueContract  # noqa: E402  # same
from nodrop.testing.store_contract.transactions import TransactionContract  # noqa: E402  # same

__all__ = ["StoreContract"]


class StoreContract(
    TransactionContract,
    LogContract,
    QueueContract,
    ListContract,
    DirectoryContract,
    HousekeepingContract,
):
    """Inherit, provide a `store` fixture that gives an empty store, pass."""
