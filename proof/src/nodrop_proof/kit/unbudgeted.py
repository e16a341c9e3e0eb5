"""CONTROL: a relay whose retries wait for nothing but their backoff, however many there are.

A proof that the retry budget ends a storm must see the storm go on with this in place. No relay
has a switch for it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from unittest import mock

from nodrop.relay.delivery.retries import Retries


@contextmanager
def no_retry_budget() -> Generator[None]:
    """Every retry is free."""
    with mock.patch.object(Retries, "wait_ms", return_value=0):
        yield
