"""The check of what would be uploaded finds what it is for."""

import io
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from install import archives

VERSION = tomllib.loads((archives.ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
INFO = f"nodrop-{VERSION}.dist-info"
METADATA = (
    "Metadata-Version: 2.4\nName: nodrop\nVersion: 1\nSummary: x\n"
    "License-Expression: Apache-2.0\nRequires-Python: >=3.11\n\nIts README."
)
GOOD = {
    "nodrop/py.typed": "",
    "nodrop/cli/__init__.py": "",
    archives.PAGE: "<html>",
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/licenses/LICENSE": "…",
}


def found(folder: Path, files: dict[str, str], version: str = VERSION) -> list[str]:
    wheel = folder / f"nodrop-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for name, text in files.items():
            out.writestr(name, text)
    return list(archives.problems(wheel, archives.files_of(wheel), ["/home/ana/nodrop"]))


def test_nothing_is_wrong_with_a_good_wheel(tmp_path: Path) -> None:
    assert found(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tests/test_x.py", "", "tests/test_x.py is not of the package"),
        ("nodrop/nodrop.db-wal", "", "nodrop/nodrop.db-wal has no place in it"),
        ("nodrop/__pycache__/x.pyc", "", "nodrop/__pycache__/x.pyc has no place in it"),
        ("nodrop/x.py", "HOME = '/home/ana/nodrop/src'", "names /home/ana/nodrop, which is a path"),
        (f"{INFO}/METADATA", METADATA.replace("Summary: x\n", ""), "its metadata lacks Summary"),
    ],
)
def test_what_has_no_place_in_a_wheel_is_found(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    [problem] = found(tmp_path, GOOD | {name: text})
    assert said in problem


@pytest.mark.parametrize("name", [archives.PAGE, "nodrop/py.typed", f"{INFO}/licenses/LICENSE"])
def test_what_is_missing_in_a_wheel_is_found(tmp_path: Path, name: str) -> None:
    assert len(found(tmp_path, {file: GOOD[file] for file in GOOD if file != name})) == 1


def test_another_version_than_the_projects_is_found(tmp_path: Path) -> None:
    assert "its version is not" in found(tmp_path, GOOD, version="9.9.9")[0]


def test_an_sdist_is_looked_into_too(tmp_path: Path) -> None:
    sdist = tmp_path / f"nodrop-{VERSION}.tar.gz"
    files = {
        "pyproject.toml": "",
        "PKG-INFO": METADATA,
        "LICENSE": "…",
        "web/node_modules/x.js": "",
    }
    with tarfile.open(sdist, "w:gz") as out:
        for name, text in files.items():
            member = tarfile.TarInfo(f"nodrop-{VERSION}/{name}")
            member.size = len(text.encode())
            out.addfile(member, io.BytesIO(text.encode()))
    held = archives.files_of(sdist)
    assert list(archives.problems(sdist, held, [])) == ["web/node_modules/x.js has no place in it"]
