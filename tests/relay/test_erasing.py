"""An erasure that was interrupted is carried out at the next start."""

from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import pytest

from nodrop.log.memory import MemoryStore
from nodrop.model.errors import StoreUnavailableError
from nodrop.protocol import requests
from nodrop.relay.relay import Caller, Relay

ASKER = Caller(team="default", agent="inbox_monitor")


async def test_an_interrupted_erasure_is_finished_at_the_next_start(
    started: Callable[[Any], Awaitable[Relay]],
) -> None:
    kept = MemoryStore()
    relay = await started(kept)
    offer = requests.Offer(to="code_agent", payload="secret")
    made: Any = (await relay.call(ASKER, "offer", offer)).answer
    handoff_id = made.handoff.id
    await relay.call(ASKER, "cancel", requests.Cancel(), reference=handoff_id)
    with (
        mock.patch.object(MemoryStore, "erase", side_effect=StoreUnavailableError),
        pytest.raises(StoreUnavailableError),
    ):
        await relay.call(ASKER, "erase", requests.Erase(command_id="c"), reference=handoff_id)
    assert await kept.bodies("default", [(handoff_id, 1)]) != {}
    shown: Any = (
        await relay.call(ASKER, "get_handoff", requests.GetHandoff(), reference=handoff_id)
    ).answer
    assert (shown.handoff.erased, bytes(shown.handoff.payload)) == (True, b"null")
    await relay.stop()
    again = await started(kept)
    assert await kept.bodies("default", [(handoff_id, 1)]) == {}
    assert await kept.records("erasure") == []
    # The repeat of the command is answered as the first time, and erases nothing more.
    await again.call(ASKER, "erase", requests.Erase(command_id="c"), reference=handoff_id)
    entries: Any = (await again.call(ASKER, "log", requests.GetLog())).answer
    assert [e.type for e in entries.entries].count("handoff.erased.v1") == 1
