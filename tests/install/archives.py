"""Archives for upload: contents, versions and metadata of the archives in a folder.

`python tests/install/archives.py dist` is run by `make wheel` and `make release`. It prints what it looked at,
and exits with 1 if anything is wrong.
"""

import argparse
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from email.parser import BytesParser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PROJECTS = {"nodrop": ROOT, "nodrop_proof": ROOT / "proof"}
PAGE = "nodrop/servers/http/dist/index.html"
MUST_HAVE = {
    "nodrop": ("nodrop/py.typed", "nodrop/cli/__init__.py", PAGE),
    "nodrop_proof": ("nodrop_proof/cli/tree.py",),
}
NEVER = re.compile(r"(^|/)(\.venv[^/]*|node_modules|__pycache__|\.git|[^/]*\.db(-wal|-shm)?)(/|$)")
"""Patterns that no archive may contain."""
FIELDS = ("Name", "Version", "Summary", "License-Expression", "Requires-Python", "Description")


def files_of(archive: Path) -> dict[str, bytes]:
    """Return every file of a wheel or an sdist; those of an sdist without its folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist() if name[-1] != "/"}
    held: dict[str, bytes] = {}
    with tarfile.open(archive) as sdist:
        for member in sdist:
            inside = sdist.extractfile(member)
            if inside is not None:
                held["/".join(PurePosixPath(member.name).parts[1:])] = inside.read()
    return held


def problems(archive: Path, held: Mapping[str, bytes], machine: Sequence[str]) -> Iterator[str]:
    """Say what is wrong with one archive; `machine` are paths that must not be in it."""
    name = archive.name.split("-")[0]
    wheel = archive.suffix == ".whl"
    version = tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text("utf-8"))["project"]
    if archive.name.removesuffix(".tar.gz").split("-")[1] != version["version"]:
        yield f"its version is not {version['version']}"
    for file in held:
        if NEVER.search(file):
            yield f"{file} has no place in it"
        if wheel and PurePosixPath(file).parts[0] not in {
            name,
            f"{name}-{version['version']}.dist-info",
        }:
            yield f"{file} is not of the package"
    for wanted in MUST_HAVE[name] if wheel else ("pyproject.toml",):
        if wanted not in held:
            yield f"{wanted} is missing"
    for file, content in held.items():
        for path in machine:
            if path.encode() in content:
                yield f"{file} names {path}, which is a path of this machine"
    yield from _about(held)


def _about(held: Mapping[str, bytes]) -> Iterator[str]:
    [head] = [
        text
        for file, text in held.items()
        if re.search(r"(^|dist-info/)(METADATA|PKG-INFO)$", file)
    ]
    metadata = BytesParser().parsebytes(head)
    for field in FIELDS:
        said = metadata.get_payload() if field == "Description" else metadata[field]
        if not said:
            yield f"its metadata lacks {field}"
    if not any(re.search(r"(^|/)LICENSE$", file) for file in held):
        yield "it has no LICENSE"


def machine_paths() -> list[str]:
    """Return the paths of this machine that a build could leave behind."""
    return sorted({str(ROOT), sys.prefix, str(Path.home() / ".cache")})


def main() -> None:
    """Look at every archive of a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    archives = sorted(
        file
        for file in parser.parse_args().folder.iterdir()
        if file.name.endswith((".whl", ".tar.gz"))
    )
    wrong = 0
    for archive in archives:
        held = files_of(archive)
        found = list(problems(archive, held, machine_paths()))
        wrong += len(found)
        size = archive.stat().st_size / 1024
        print(f"{'✗' if found else '✓'} {archive.name}: {len(held)} files, {size:,.0f} KB")
        for problem in found[:20]:
            print(f"  {problem}")
    if wrong or {file.name.split("-")[0] for file in archives} != set(PROJECTS):
        sys.exit("not to be uploaded: see above; both distributions must be there")


if __name__ == "__main__":
    main()
