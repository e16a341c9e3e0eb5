"""Texts for agents that come with the package: `skill.md` and `llms.txt`."""

import functools
from importlib import resources


@functools.cache
def text(name: str) -> str:
    """Return one of them."""
    return (resources.files(__name__) / name).read_text(encoding="utf-8")
