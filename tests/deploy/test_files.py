"""The deployment files, as far as they can be checked without starting anything."""

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROBED = {"/healthz", "/readyz"}


def kinds() -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / "nodrop.yaml").read_text())
    return {document["kind"]: document for document in documents}


def test_the_service_and_the_budget_are_about_the_pods_that_there_are() -> None:
    found = kinds()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert "sessionAffinity" not in found["Service"]["spec"]


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
def test_a_probe_asks_for_a_page_that_exists(probe: str) -> None:
    [container] = kinds()["Deployment"]["spec"]["template"]["spec"]["containers"]
    asked = container[probe]["httpGet"]
    assert asked["path"] in PROBED
    assert asked["port"] in {port["name"] for port in container["ports"]}


def test_only_a_database_that_is_away_takes_a_pod_out_of_the_service() -> None:
    [container] = kinds()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_every_volume_that_is_mounted_is_there() -> None:
    spec = kinds()["Deployment"]["spec"]["template"]["spec"]
    containers = (*spec["initContainers"], *spec["containers"])
    mounted = {mount["name"] for each in containers for mount in each["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_a_pod_copies_what_the_secret_is_said_to_hold() -> None:
    text = (DEPLOY / "kubernetes" / "nodrop.yaml").read_text()
    made = set(re.findall(r"--from-file=\S*/(\S+)", text))
    spec = kinds()["Deployment"]["spec"]["template"]["spec"]
    [volume] = [volume for volume in spec["volumes"] if "secret" in volume]
    held = {item["key"] for item in volume["secret"]["items"]}
    copied = set(re.findall(r"cp /secret/(\S+)", spec["initContainers"][0]["args"][0]))
    assert copied == held == made


def test_the_nodes_of_the_compose_file_share_one_database_and_one_home() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    nodes = [service for name, service in services.items() if name.startswith("node-")]
    assert len(nodes) == 2
    assert len({node["environment"]["NODROP_STORE"] for node in nodes}) == 1
    assert {tuple(node["volumes"]) for node in nodes} == {("home:/var/lib/nodrop",)}
    assert len({port for node in nodes for port in node["ports"]}) == 2


def test_the_image_copies_files_that_there_are() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert names
    assert all((ROOT / name).exists() for name in names)
    assert "USER 10001" in text


def copied_by_the_image(into: Path) -> Path:
    """What the build stage of the image has: the files that it copies, and no others."""
    text = (DEPLOY / "Containerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        *names, target = line.split()
        for name in names:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, into / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, into / target)
    return into


def wheel_from(folder: Path, into: Path) -> subprocess.CompletedProcess[str]:
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--no-index"]
    return subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", into, folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.timeout(180)  # pip, on a machine that does other things too
def test_the_image_copies_what_the_package_is_built_from(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    folder = copied_by_the_image(tmp_path / "source")
    page = folder / "src/nodrop/servers/http/dist/index.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text("the dashboard, built before the image")
    built = wheel_from(folder, tmp_path / "wheels")
    assert built.returncode == 0, built.stdout + built.stderr
    [wheel] = (tmp_path / "wheels").glob("nodrop-*.whl")
    assert "nodrop/log/postgres/schema/0009_journal.sql" in ZipFile(wheel).namelist()
    assert ZipFile(wheel).namelist().count("nodrop/servers/http/dist/index.html") == 1
    # The control: a file that the build needs and nobody copied is noticed.
    (folder / "hatch_build.py").unlink()
    assert wheel_from(folder, tmp_path / "none").returncode != 0


def test_the_image_installs_extras_that_there_are_and_that_a_relay_uses() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    [named] = re.findall(r"'\.\[([a-z0-9,-]+)\]'", text)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    installed = set(named.split(","))
    assert installed <= extras.keys()
    while (
        nested := {
            extra
            for name in installed
            for line in extras[name]
            for found in re.findall(r"^nodrop\[(.+)\]$", line)
            for extra in found.split(",")
        }
        - installed
    ):
        installed |= nested
    assert installed >= {"postgres", "mcp", "a2a", "triggers", "notify", "webhooks", "otel"}


def test_the_unit_keeps_the_password_out_of_the_command_line() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]  # names keep their case
    unit.read(DEPLOY / "nodrop.service")
    assert "--store" not in unit["Service"]["ExecStart"]
    assert unit["Service"]["EnvironmentFile"] == "/etc/nodrop.env"
    assert unit["Service"]["KillSignal"] == "SIGTERM"
