"""The event loop for programs that do nothing but relay or work."""

import asyncio
from collections.abc import Callable


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest loop there is on this platform; None: asyncio's own is."""
    try:
        import uvloop  # noqa: PLC0415  # other programs need not load it, and Windows has none
    except ImportError:
        return None
    return uvloop.new_event_loop
