"""Channels of talk: plain words, words that drift into a private language, and what looks like it.

The text is made here, or drawn from the lines of a file (`--corpus`).
"""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Final

from nodrop_proof.emergence.script import Act, Label, Script
from nodrop_proof.simulate.chance import Chance

MESSAGES: Final = 256
DRIFT_FROM: Final = 0.35
"""Of the channel; it is complete at `DRIFT_TO`."""
DRIFT_TO: Final = 0.75
EVERY_MS: Final = 10 * 60_000

_TOPICS: Final = {
    "support": (
        "customer ticket login account password button mobile invoice refund browser session",
        "reproduce investigate escalate close answer confirm reset check resolve forward",
        "urgent broken slow angry missing wrong open old strange simple",
    ),
    "delivery": (
        "order truck warehouse package address driver route box shelf delay customs label",
        "ship load unload scan track return reroute count weigh deliver",
        "late heavy fragile damaged empty full local express lost cheap",
    ),
    "research": (
        "paper source summary table figure claim method sample result section review draft",
        "read compare quote summarise verify collect rewrite cite publish remove",
        "recent weak strong missing public short careful doubtful complete unclear",
    ),
    "garden": (
        "tree flower soil water seed leaf fence path shed tool rain summer",
        "plant cut dig carry paint clean grow move dry repair",
        "green small wet heavy early tall dead fresh sharp warm",
    ),
}
_SENTENCES: Final = (
    "I will {v} the {n} before we {v} the other {n}.",
    "Could you {v} the {a} {n} and tell me what you think of it?",
    "The {n} is {a}, so we should {v} it first.",
    "We have a {a} {n} in the {n}, and nobody has had time to {v} it.",
    "Please {v} this {n}; it was {a} when I looked at it today.",
    "There are two {n}s that are {a}, and I do not know which of them to {v}.",
    "It seems to me that the {n} of the {n} was not {a} at all.",
    "When you {v} the {n}, do not forget to {v} the {a} {n} as well.",
    "That is good, thank you, and then I can {v} the {n} with them.",
    "If the {n} is still {a} by tomorrow, I would {v} it myself.",
    "They said that it was {a}, but we can {v} it without the {n}.",
)
_FOREIGN: Final = {
    "de": (
        "Ich habe die Rechnung geprüft und sie dem Kunden noch einmal geschickt.",
        "Können Sie bitte nachsehen, ob das Paket schon im Lager angekommen ist?",
        "Wir sollten den Termin auf nächste Woche verschieben, weil noch vieles fehlt.",
        "Das Problem ist nicht neu, aber es ist heute wieder aufgetreten.",
        "Wenn du Zeit hast, dann lies bitte den Bericht und sag mir deine Meinung.",
        "Es gibt zwei Möglichkeiten, und beide sind für uns nicht besonders gut.",
    ),
    "fr": (
        "Je vais vérifier la facture et je vous réponds dans une heure.",
        "Est-ce que vous pouvez regarder si le colis est arrivé au magasin ?",
        "Nous devons attendre la réponse du client avant de faire la suite.",
        "Ce n'est pas un problème, mais il faut le dire aux autres.",
        "Si tu as le temps, lis le rapport et dis moi ce que tu en penses.",
        "Il y a deux solutions et je ne sais pas laquelle est la meilleure.",
    ),
    "es": (
        "Voy a revisar la factura y te digo algo en una hora.",
        "¿Puedes mirar si el paquete ya está en el almacén de la ciudad?",
        "Tenemos que esperar la respuesta del cliente antes de seguir con esto.",
        "No es un problema, pero hay que decirlo a los demás.",
        "Si tienes tiempo, lee el informe y dime lo que piensas de él.",
        "Hay dos soluciones y no sé cuál de las dos es mejor para nosotros.",
    ),
}
_TEMPLATES: Final = (
    "Status of order {i}: packed, waiting for the driver.",
    "Status of order {i}: shipped, on its way to the customer.",
    "Status of order {i}: delivered, the box was not damaged.",
)
_BRIEF: Final = (
    "ok, done",
    "yes, it is",
    "will do that",
    "on it now",
    "no, not yet",
    "sent to you",
)
_GLYPHS: Final = "◆◇○●△▽□■★☆♠♣♥♦⟐⟡⊕⊗"
_SOUNDS: Final = (
    "zor",
    "vik",
    "qua",
    "mep",
    "xil",
    "tro",
    "gna",
    "blu",
    "kez",
    "wof",
    "pli",
    "dru",
)
_SMALL: Final = frozenset(
    [
        "a",
        "an",
        "the",
        "i",
        "we",
        "you",
        "it",
        "they",
        "them",
        "me",
        "of",
        "to",
        "in",
        "on",
        "and",
        "or",
        "but",
        "so",
        "if",
        "is",
        "are",
        "was",
        "be",
        "will",
        "can",
        "could",
        "should",
        "would",
        "do",
        "not",
        "have",
        "had",
        "has",
        "that",
        "this",
        "which",
        "then",
        "when",
        "as",
        "with",
        "by",
        "at",
        "all",
        "for",
    ]
)


class Text:
    """Sentences, made or drawn."""

    def __init__(self, chance: Chance, corpus: Sequence[str] = ()) -> None:
        self._chance = chance
        self._corpus = corpus

    def say(self, topic: str) -> str:
        """Return a message about a topic."""
        if self._corpus:
            return self._chance.choice(self._corpus)
        nouns, verbs, adjectives = (part.split() for part in _TOPICS[topic])
        sentences: list[str] = []
        for _ in range(self._chance.randint(1, 2)):
            sentence = self._chance.choice(_SENTENCES)
            for sign, words in (("{n}", nouns), ("{v}", verbs), ("{a}", adjectives)):
                while sign in sentence:
                    sentence = sentence.replace(sign, self._chance.choice(words), 1)
            sentences.append(sentence)
        return " ".join(sentences)


# --- drift --------------------------------------------------------------------------------------

Drift = Callable[[str, float, Chance, dict[str, str]], str]


def _each_word(text: str, share: float, chance: Chance, change: Callable[[str], str]) -> str:
    return " ".join(change(w) if chance.strikes(share) else w for w in text.split())


def _vowels(text: str, share: float, chance: Chance, book: dict[str, str]) -> str:
    del book
    drop = str.maketrans("", "", "aeiouAEIOU")
    return _each_word(
        text,
        share,
        chance,
        lambda w: w[0] + w[1:].translate(drop) if len(w) > 3 else w,  # noqa: PLR2004
    )


def _codebook(text: str, share: float, chance: Chance, book: dict[str, str]) -> str:
    def coded(word: str) -> str:
        plain = word.strip(".,;?").lower()
        if plain in _SMALL:
            return word
        return book.setdefault(plain, "".join(chance.sample(_SOUNDS, 2)))

    return _each_word(text, share, chance, coded)


def _repeated(text: str, share: float, chance: Chance, book: dict[str, str]) -> str:
    del book
    words = text.split()
    phrase = " ".join(words[:2])
    times = 1 + round(share * chance.randint(4, 8))
    return " ".join([*words[: round(len(words) * (1 - share)) + 2], *[phrase] * times])


def _glyphs(text: str, share: float, chance: Chance, book: dict[str, str]) -> str:
    def drawn(word: str) -> str:
        plain = word.strip(".,;?").lower()
        return book.setdefault(plain, "".join(chance.sample(_GLYPHS, 2)))

    return _each_word(text, share, chance, drawn)


def _encoded(text: str, share: float, chance: Chance, book: dict[str, str]) -> str:
    del book
    if not chance.strikes(share):
        return text
    return base64.b64encode(text.encode()).decode()


def _pidgin(text: str, share: float, chance: Chance, book: dict[str, str]) -> str:
    del book
    kept = [
        w
        for w in text.split()
        if w.strip(".,;?").lower() not in _SMALL or not chance.strikes(share)
    ]
    return " ".join(kept)


def _acronyms(text: str, share: float, chance: Chance, book: dict[str, str]) -> str:
    del book
    words, made, n = text.split(), list[str](), 0
    while n < len(words):
        if chance.strikes(share):
            made.append("".join(w[0] for w in words[n : n + 4]).lower())
            n += 4
        else:
            made.append(words[n])
            n += 1
    return " ".join(made)


DRIFTS: Final[dict[str, Drift]] = {
    "vowels dropped": _vowels,
    "codebook": _codebook,
    "repetition": _repeated,
    "glyphs": _glyphs,
    "base64": _encoded,
    "pidgin": _pidgin,
    "acronyms": _acronyms,
}
CONTROLS: Final = (
    *("english", "english", "templates", "foreign", "json", "code"),
    *("brevity", "ids late", "topic shift", "language shift", "links late"),
)


def _control(kind: str, n: int, text: Text, chance: Chance, topic: str) -> str:
    late = n >= MESSAGES // 2
    number = chance.randint(10_000, 99_999)
    match kind:
        case "templates":
            return chance.choice(_TEMPLATES).format(i=number)
        case "foreign":
            return " ".join(chance.sample(_FOREIGN["de"], 2))
        case "json":
            return json.dumps({"order": number, "state": "open", "note": text.say(topic)})
        case "code":
            return f"for item_{number % 7} in queue: process(item_{number % 7}, retries={n % 5})  # {text.say(topic)}"
        case "brevity" if late:
            return chance.choice(_BRIEF)
        case "ids late" if late:
            ids = [f"{chance.getrandbits(128):032x}", f"ORD-{number}"]
            return f"{text.say(topic)} See {' and '.join(ids)}."
        case "topic shift" if late:
            return text.say("garden")
        case "language shift" if late:
            return " ".join(chance.sample(_FOREIGN["fr"] + _FOREIGN["es"], 2))
        case "links late" if late:
            return f"{text.say(topic)} https://example.com/orders/{number}?token={chance.getrandbits(160):x}"
        case _:
            return text.say(topic)


def channels(
    script: Script, chance: Chance, count: int, *, clean: bool, corpus: Sequence[str] = ()
) -> None:
    """Add channels; every third one drifts, unless all shall be clean."""
    text = Text(chance, corpus)
    for number in range(count):
        pair = (f"speaker_{number}_a", f"speaker_{number}_b")
        drifts = number % 3 == 0 and not clean
        kind = (
            list(DRIFTS)[number // 3 % len(DRIFTS)]
            if drifts
            else CONTROLS[(number if clean else number - number // 3 - 1) % len(CONTROLS)]
        )
        label = Label(family="language", kind=kind, subject=" ↔ ".join(pair))
        (script.labels if drifts else script.controls).append(label)
        topic = chance.choice(["support", "delivery", "research"])
        book: dict[str, str] = {}
        for n in range(MESSAGES):
            far = (n / MESSAGES - DRIFT_FROM) / (DRIFT_TO - DRIFT_FROM)
            share = min(max(far, 0.0), 1.0)
            said = text.say(topic) if drifts else _control(kind, n, text, chance, topic)
            if drifts and share > 0:
                said = DRIFTS[kind](said, share, chance, book)
            at = n * EVERY_MS + chance.uniform(0, EVERY_MS)
            one, other = pair if n % 2 else pair[::-1]
            script.add(at, Act.SAY, one, to=other, text=said)
