"""Targets of `decoders` under atheris, guided by coverage, each in a process of its own.

The processes are `instrumented`: each ends with 0 after the runs it was given, or tells the input
that was not taken well.
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nodrop_proof.fuzz import decoders
from nodrop_proof.fuzz.findings import Findings

INPUT_BYTES_MAX: Final = 4_096
INPUT_SECONDS_MAX: Final = 10
"""An input that takes longer is a defect too."""
_TOLD_CHARS_MAX: Final = 4_000
_RAN: Final = re.compile(r"Done (\d+) runs in")
_CHILD: Final = "nodrop_proof.fuzz.instrumented"


def run(
    *,
    runs: int,
    seed: int,
    progress: Callable[[int, int], None],
    targets: tuple[str, ...] = tuple(decoders.TARGETS),
    child: str = _CHILD,
) -> Findings:
    """Give every target its share of `runs`.

    Raises:
        ImportError: atheris is not installed.
    """
    if importlib.util.find_spec("atheris") is None:
        raise ImportError("atheris is not installed: pip install atheris, or use --plain")
    share = -(-runs // len(targets))
    given: dict[str, int] = {}
    told: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in targets:
            done = _fuzz(Path(folder), name, share=share, seed=seed, child=child)
            ran = _RAN.search(done.stderr)
            given[name] = int(ran[1]) if ran else 0
            if done.returncode != 0 or given[name] < share:
                told[name] = done.stdout[-_TOLD_CHARS_MAX:] + done.stderr[-_TOLD_CHARS_MAX:]
            progress(sum(given.values()), runs)
    return Findings(runs=sum(given.values()), seed=seed, targets=given, told=told)


def _fuzz(
    folder: Path, name: str, *, share: int, seed: int, child: str
) -> "subprocess.CompletedProcess[str]":
    words, corpus = folder / "words", folder / name
    words.write_text("".join(f'"{_spelled(word)}"\n' for word in decoders.WORDS), encoding="ascii")
    corpus.mkdir()
    for number, data in enumerate(decoders.SEEDS[name]):
        (corpus / str(number)).write_bytes(data)
    return subprocess.run(  # noqa: S603  # a module of ours
        [
            *(sys.executable, "-m", child, name),
            *(f"-runs={share}", f"-seed={seed}", f"-dict={words}"),
            *(f"-max_len={INPUT_BYTES_MAX}", f"-timeout={INPUT_SECONDS_MAX}", str(corpus)),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def _spelled(word: bytes) -> str:
    """Return `word` as a dictionary of libFuzzer has it."""
    return "".join(
        chr(byte) if chr(byte).isalnum() and byte < 0x80 else f"\\x{byte:02x}"  # noqa: PLR2004  # ASCII
        for byte in word
    )
