"""The schemas that are made from the code and checked in."""

from pathlib import Path

import msgspec

from nodrop.protocol import manifest, openapi


def write_schemas(directory: Path) -> None:
    """Write the generated schemas, which are checked in, into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (directory / name).write_bytes(text)


def schemas() -> dict[str, bytes]:
    """Return every generated schema by the name of its file."""
    made = {"openapi.json": openapi.document(), "manifest.json": manifest.document()}
    return {
        name: msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        for name, document in made.items()
    }
