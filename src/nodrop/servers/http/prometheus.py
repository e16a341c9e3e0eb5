"""Figures in the text format that Prometheus reads."""

from collections.abc import Iterable, Iterator
from typing import Final

from nodrop.relay.upkeep.figures import Figure

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def text(figures: Iterable[Figure]) -> str:
    """Return figures as they are scraped."""
    return "".join(f"{line}\n" for figure in figures for line in _lines(figure))


def _lines(figure: Figure) -> Iterator[str]:
    name = f"nodrop_{figure.name}" + ("_total" if figure.counter else "")
    yield f"# HELP {name} {figure.about}"
    yield f"# TYPE {name} {'counter' if figure.counter else 'gauge'}"
    for labels, value in figure.samples:
        # Names of teams, agents and types of entries hold nothing that would need escaping.
        told = ",".join(f'{label}="{of}"' for label, of in labels.items())
        yield f"{name}{{{told}}} {value}" if told else f"{name} {value}"
