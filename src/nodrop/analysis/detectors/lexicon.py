"""Words that people use, in twelve languages, and the short ones that hold sentences together."""

import re
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from nodrop.protocol import extras

LANGUAGES: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "fi", "pl")
_FUNCTION_WORDS: Final = 100
"""Of each language, the most frequent words."""
_LATIN: Final = re.compile(r"[a-z]")


class Lexicon(NamedTuple):
    """Known words."""

    words: frozenset[str]
    function_words: frozenset[str]
    by_language: dict[str, frozenset[str]]

    def knows(self, word: str) -> bool:
        """Whether a word is in a dictionary; those of another script than ours count as known."""
        return word in self.words or _LATIN.search(word) is None


@cache
def lexicon() -> Lexicon:
    """Return the words of all languages; read once.

    Raises:
        NotInstalledError: it takes wordfreq.
    """
    try:
        wordfreq: Any = import_module("wordfreq")  # an extra without types
    except ImportError as error:
        raise extras.missing_here("wordfreq", "analyze") from error
    words: set[str] = set()
    function_words: dict[str, frozenset[str]] = {}
    for language in LANGUAGES:
        words.update(wordfreq.get_frequency_dict(language, wordlist="small"))
        top: list[str] = wordfreq.top_n_list(language, _FUNCTION_WORDS, wordlist="small")
        function_words[language] = frozenset(word for word in top if word.isalpha())
    return Lexicon(frozenset(words), frozenset().union(*function_words.values()), function_words)
