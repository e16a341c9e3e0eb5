"""A small log for each test."""

import pytest

from kit.small_log import Log


@pytest.fixture
def log() -> Log:
    return Log()
