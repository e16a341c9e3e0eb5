"""Characters that a terminal or a browser obeys, or hides, made visible.

Controls (C0 but tab and newline, DEL, C1), marks that turn the direction of text, and characters of no
width. The joiners U+200C and U+200D stay: scripts and emoji are spelled with them.
"""

import re
from typing import Final

_UNSEEN: Final = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u200e\\u200f"
    "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\U000e0000-\\U000e007f]"
)
_PLANE: Final = 0x10000


def replaced(text: str) -> str:
    """Return `text` with the replacement character for each of them, for a terminal."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def named(text: str) -> str:
    """Return `text` with the number of each of them in its place, for a page."""
    return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def escaped(json: str) -> str:
    """Return a JSON document with each of them as an escape: the same document, and nothing hidden."""
    return _UNSEEN.sub(_escape, json)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < _PLANE:
        return f"\\u{number:04x}"
    number -= _PLANE
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
