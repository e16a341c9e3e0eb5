"""The dashboard: the page that `make page` builds from `web/`, served at `/` and below `/assets/`.

All addresses in the page are relative, and its views live in the fragment, so it works below any
path that a proxy gives it. The files are read once, and kept in memory with their compressed form.
"""

import functools
import gzip
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

BUILT: Final = Path(__file__).parent / "dist"
"""Where the build puts the page. It is in the wheel, and not in the repository."""

_INDEX: Final = "index.html"
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_FRESH: Final = "no-cache"
_FOREVER: Final = "public, max-age=31536000, immutable"  # the name of an asset has its hash
_NOT_BUILT: Final = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Nodrop</title>
<h1>Nodrop</h1>
<p>The relay is running. Its dashboard is not built in this checkout: install Node 20.19, 22.12 or
later and run <code>make page</code>. An installed release has it.</p>
<ul>
<li><a href="openapi.json">openapi.json</a>: every operation of the relay</li>
<li><a href="skill.md">skill.md</a> and <a href="llms.txt">llms.txt</a>: for agents to read</li>
<li><a href="healthz">healthz</a> and <a href="readyz">readyz</a>: whether the relay is well</li>
</ul>
</html>
"""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the page."""

    kind: str
    plain: bytes
    compressed: bytes


def routes(built: Path = BUILT) -> Sequence[BaseRoute]:
    """Return the routes of the page in the folder `built`."""

    async def index(request: Request) -> Response:
        return _answer(request, _index(built), cache=_FRESH)

    async def asset(request: Request) -> Response:
        found = _assets(built).get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return _answer(request, found, cache=_FOREVER)

    return (Route("/", index), Route("/assets/{name}", asset))


def _answer(request: Request, file: File, *, cache: str) -> Response:
    headers = HEADERS | {"cache-control": cache, "vary": "accept-encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.plain, media_type=file.kind, headers=headers)
    headers["content-encoding"] = "gzip"
    return Response(file.compressed, media_type=file.kind, headers=headers)


@functools.cache
def _assets(built: Path) -> dict[str, File]:
    folder = built / "assets"
    return {path.name: _read(path) for path in folder.iterdir()} if folder.is_dir() else {}


@functools.cache
def _index(built: Path) -> File:
    path = built / _INDEX
    return _read(path) if path.is_file() else _file("text/html", _NOT_BUILT)


def _read(path: Path) -> File:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return _file(kind, path.read_bytes())


def _file(kind: str, content: bytes) -> File:
    return File(kind=kind, plain=content, compressed=gzip.compress(content, mtime=0))
