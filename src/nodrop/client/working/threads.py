"""Plain functions in threads, awaited from the event loop."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run(work: Callable[[], T], *, name: str, cancel: Callable[[], None]) -> T:
    """Run `work` in a thread of its own and return what it returns.

    A thread cannot be stopped. If we are cancelled, `cancel` tells it so, and we wait for it to
    end; a second cancellation leaves it behind. It never keeps the program from ending.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
            done.exception()  # after a cancellation nobody looks at it
        else:
            done.set_result(result)  # pyright: ignore[reportArgumentType]  # None is T's own here

    def body() -> None:
        result, error = None, None
        try:
            result = context.run(work)
        except StopIteration as raised:
            # No future takes one: whoever awaits it would wait for ever.
            error = RuntimeError("the function raised StopIteration")
            error.__cause__ = raised
        except BaseException as raised:  # noqa: BLE001  # handed to whoever awaits it
            error = raised
        try:
            loop.call_soon_threadsafe(finish, result, error)
        except RuntimeError:
            return  # the loop is gone, and with it whoever waited

    threading.Thread(target=body, name=name, daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel()
        await asyncio.wait([done])
        raise
