"""The deployment files, held to what those who would read them say is right.

Needs systemd's `systemd-analyze`, and the extra `servers`: `make test-servers`.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
PROGRAMS: Final = Path(sys.executable).parent
OLDEST, LATEST = "1.31", "1.37"
"""Versions of Kubernetes."""


def said(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("version", [OLDEST, LATEST])
def test_kubernetes_would_take_the_manifests(version: str) -> None:
    validate = PROGRAMS / "kubernetes-validate"
    told = said(validate, "-k", version, "--strict", DEPLOY / "kubernetes" / "nodrop.yaml")
    assert told.count("passed for resource") == 3


def test_compose_would_take_its_file() -> None:
    check = PROGRAMS / "check-jsonschema"
    said(check, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


def test_a_linter_finds_nothing_wrong_with_the_container_file() -> None:
    assert said(PROGRAMS / "hadolint", DEPLOY / "Containerfile") == ""


def test_systemd_would_take_the_unit(tmp_path: Path) -> None:
    """With a program that is there in the place of the one that is not."""
    unit = (DEPLOY / "nodrop.service").read_text()
    there = tmp_path / "nodrop.service"
    there.write_text(unit.replace("/opt/nodrop/bin/nodrop", "/bin/true"))
    assert said("systemd-analyze", "verify", there) == ""


def test_systemd_notices_a_unit_that_is_wrong(tmp_path: Path) -> None:
    """The control."""
    unit = (DEPLOY / "nodrop.service").read_text()
    there = tmp_path / "nodrop.service"
    there.write_text(unit.replace("KillSignal=SIGTERM", "KillSignal=SIGNOTHING"))
    done = subprocess.run(
        ["systemd-analyze", "verify", there],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "SIGNOTHING" in done.stderr
