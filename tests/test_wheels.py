"""The files that each wheel of this repository holds, as its build backend lists them."""

import tomllib
from pathlib import Path, PurePosixPath

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]


def held(project: Path, folder: str = "") -> set[str]:
    """The names directly below a folder of a project's wheel."""
    listed = WheelBuilder(str(project)).recurse_included_files()
    files = [PurePosixPath(file.distribution_path) for file in listed]
    below = [file.relative_to(folder) for file in files if file.is_relative_to(folder)]
    return {file.parts[0].removesuffix(".py") for file in below}


def test_the_wheel_holds_the_product_and_neither_proofs_nor_test_kit() -> None:
    assert held(ROOT) == {"nodrop"}
    assert held(ROOT, "nodrop") == {
        "__init__",
        "adapters",
        "analysis",
        "app",
        "audit",
        "cli",
        "client",
        "log",
        "model",
        "outbound",
        "protocol",
        "py.typed",
        "relay",
        "servers",
        "testing",
    }


def test_what_it_brings_for_testing_is_for_those_who_use_it() -> None:
    kit = {"__init__", "clock", "handoffs", "play", "store_contract"}
    assert held(ROOT, "nodrop/testing") == kit


def test_its_command_line_has_no_proofs() -> None:
    assert not held(ROOT, "nodrop/cli") & {"bench", "chaos", "simulate"}


def test_the_proofs_are_a_wheel_of_their_own() -> None:
    proofs = {"backup", "bench", "chaos", "emergence", "fuzz", "simulate", "storm", "sync_order"}
    proofs |= {"adversary", "soak", "tampering"}
    assert held(ROOT / "proof") == {"nodrop_proof"}
    assert held(ROOT / "proof", "nodrop_proof") == {"__init__", "cli", "kit"} | proofs


def test_the_proofs_go_with_one_version_of_the_product() -> None:
    product, proofs = (
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (ROOT, ROOT / "proof")
    )
    assert proofs["version"] == product["version"]
    assert f"nodrop=={product['version']}" in proofs["dependencies"]
