"""`python -m nodrop_proof.fuzz.instrumented TARGET [options of libFuzzer]`: one target of `decoders`.

A process of its own, because libFuzzer ends the one it runs in, and because the package must be
loaded through atheris for it to see what an input reached.
"""

import functools
import importlib
import sys
from typing import Any


def main() -> None:
    """Fuzz the target that the first argument names."""
    atheris: Any = importlib.import_module("atheris")  # only whoever fuzzes has it
    with atheris.instrument_imports(include=["nodrop"]):
        decoders: Any = importlib.import_module("nodrop_proof.fuzz.decoders")
    feed = functools.partial(decoders.feed, decoders.TARGETS[sys.argv.pop(1)])
    atheris.Setup(sys.argv, feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
