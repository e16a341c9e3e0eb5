"""How a relay is run: on the fastest event loop, in an interpreter that is set for it."""

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from nodrop.client.working.loop import fastest_loop

T = TypeVar("T")

SWITCH_SECONDS: Final = 0.0005


def run(main: Coroutine[Any, Any, T]) -> T:
    """Return what `main` returns, run on the fastest event loop there is."""
    # The store's thread must not wait long for a busy loop to let go of the interpreter.
    sys.setswitchinterval(SWITCH_SECONDS)
    # Values here are frozen and make no cycles: looking for some so often costs a sixth of the rate.
    gc.freeze()
    # Few of the young ones together, so that no pause is long: each is looked at as often as before.
    gc.set_threshold(50_000, 5, 200)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(main)
