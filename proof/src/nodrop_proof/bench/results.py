"""The last results of each kind, kept beside the page that is made from them."""

from pathlib import Path
from typing import Final

import msgspec

from nodrop_proof.bench import chart, page
from nodrop_proof.bench.finding import Finding
from nodrop_proof.bench.growth import Growth
from nodrop_proof.bench.idle import Idle
from nodrop_proof.bench.report import Report

DATA: Final = "benchmarks.json"
PAGE: Final = "benchmarks.md"
CHART: Final = "benchmarks.svg"


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured last; the parts may come from different runs."""

    peers: Report | None = None
    growth: Growth | None = None
    growth_postgres: Growth | None = None
    idle: Idle | None = None
    finding: Finding | None = None


def read(folder: Path) -> Results:
    """Return what is kept in `folder`; nothing, if there is nothing yet."""
    try:
        return msgspec.json.decode((folder / DATA).read_bytes(), type=Results)
    except FileNotFoundError:
        return Results()


def write(folder: Path, latest: Report | Growth | Idle | Finding) -> None:
    """Put `latest` in the place of the last of its kind, and make page and chart anew."""
    known = read(folder)
    match latest:
        case Report():
            known = msgspec.structs.replace(known, peers=latest)
        case Growth(store="postgres"):
            known = msgspec.structs.replace(known, growth_postgres=latest)
        case Growth():
            known = msgspec.structs.replace(known, growth=latest)
        case Idle():
            known = msgspec.structs.replace(known, idle=latest)
        case Finding():
            known = msgspec.structs.replace(known, finding=latest)
    data = msgspec.json.format(msgspec.json.encode(known), indent=1)
    (folder / DATA).write_bytes(data + b"\n")
    for name, text in made(known).items():
        (folder / name).write_text(text, encoding="utf-8")


def made(results: Results) -> dict[str, str]:
    """Return the files that are made from `results`, by name."""
    measured = (results.peers, results.growth, results.idle, results.finding)
    files = {PAGE: page.made(*measured, growth_postgres=results.growth_postgres, chart=CHART)}
    if results.peers is not None:
        files[CHART] = chart.made(results.peers)
    return files
