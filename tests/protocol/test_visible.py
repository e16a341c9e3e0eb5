import json

import pytest

from nodrop.protocol import visible


@pytest.mark.parametrize(
    "character",
    ["\0", "\x1b", "\x7f", "\x9b", "\u061c", "\u200b", "\u202e", "\u2066", "\ufeff", "\U000e0041"],
)
def test_what_nobody_sees_is_shown(character: str) -> None:
    assert visible.replaced(f"a{character}b") == "a\N{REPLACEMENT CHARACTER}b"
    assert visible.named(f"a{character}b") == f"a[U+{ord(character):04X}]b"
    document = json.dumps({"a": character}, ensure_ascii=False)
    written = visible.escaped(document)
    assert character not in written
    assert json.loads(written) == {"a": character}


def test_words_stay_as_they_are() -> None:
    words = "tab\tline\n é ß 日本 👩\u200d🔬 می\u200cخواهم שלום"
    assert visible.replaced(words) == visible.named(words) == visible.escaped(words) == words
