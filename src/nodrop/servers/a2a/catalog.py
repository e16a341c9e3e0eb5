"""Discovery files and the search of a registry (AI Catalog, ARD): who is there, for strangers too.

Without a token only public agents are told of; a member of a team sees its own. The search is by
words and filters; ranking by what was measured is for the relay's own discovery.
"""

import re
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nodrop.model.errors import InvalidRequestError, NotFoundError, Problem
from nodrop.servers.a2a.application import CACHE, CARD_PATH, serve_card
from nodrop.servers.a2a.calling.visit import View
from nodrop.servers.a2a.publishing import Publishing
from nodrop.servers.a2a.signing import JWKS_PATH

CATALOG_PATHS: Final = frozenset({"/.well-known/ai-catalog.json", "/.well-known/ard.json"})
SEARCH_PATH: Final = "/search"
CARD_TYPE: Final = "application/a2a-agent-card+json"
_BODY_BYTES_MAX: Final = 65_536
_PAGE_MAX: Final = 100
_WORDS_MAX: Final = 64
_FOUND: Final = 100
"""The score of an entry that has every word."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Whose agents are shown, and how the reader sees this relay."""

    team: str
    public_only: bool
    base: str


class _Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = ""
    filter: dict[str, str | list[str]] = {}


class _Search(msgspec.Struct, frozen=True, rename="camel"):
    query: _Query = _Query()
    page_size: int = 20
    page_token: str = ""


async def answer(request: Request, publishing: Publishing, seen: Seen, *, strict: bool) -> Response:
    """Return the discovery file, or the search result, that is asked for."""
    path, reading = request.url.path, request.method in {"GET", "HEAD"}
    if path == SEARCH_PATH and request.method == "POST":
        return JSONResponse(_search(await _read(request), await _entries(publishing, seen), seen))
    if not reading:
        raise NotFoundError("no such path")
    if path in CATALOG_PATHS:
        entries = await _entries(publishing, seen)
        catalog = {
            "specVersion": "1.0",
            "host": {"displayName": "Nodrop relay"},
            "entries": entries,
        }
        return JSONResponse(catalog, headers={"cache-control": CACHE})
    if path == CARD_PATH:
        card = await publishing.front_desk(seen.team, base=seen.base, public_only=seen.public_only)
        return await serve_card(card, request, changed_at=None, strict=strict)
    if path == JWKS_PATH:
        return Response(publishing.jwks(), media_type="application/json")
    raise NotFoundError("no such path")


async def _entries(publishing: Publishing, seen: Seen) -> list[View]:
    found = await publishing.agents(seen.team, public_only=seen.public_only)
    return [_entry(agent, publishing, seen) for agent in found]


def _entry(agent: View, publishing: Publishing, seen: Seen) -> View:
    name, manifest = agent["agent_id"], agent["manifest"]
    host = (
        re.sub(r"[^A-Za-z0-9.-]", "-", seen.base.partition("://")[2].partition(":")[0]) or "relay"
    )
    address = publishing.address(seen.base, seen.team, name)
    entry: View = {
        "identifier": f"urn:air:{host}:{re.sub(r'[^A-Za-z0-9._-]', '-', seen.team)}:{name}",
        "displayName": name,
        "type": CARD_TYPE,
        "url": f"{address}{CARD_PATH}",
        "version": str(agent["version"] or 1),
        "updatedAt": agent["registered_at"],
    }
    capabilities = manifest.get("capabilities") or ()
    tags = {*(manifest.get("tags") or ()), *(t for c in capabilities for t in c.get("tags") or ())}
    entry |= {"description": manifest["description"]} if manifest.get("description") else {}
    entry |= {"tags": sorted(tags)} if tags else {}
    entry |= {"capabilities": [c["name"] for c in capabilities]} if capabilities else {}
    return entry


async def _read(request: Request) -> _Search:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES_MAX:
            raise _wrong("query", f"larger than {_BODY_BYTES_MAX} bytes")
    try:
        asked = msgspec.json.decode(body, type=_Search)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _wrong("query", str(error)) from None
    if not 1 <= asked.page_size <= _PAGE_MAX:
        raise _wrong("pageSize", f"between 1 and {_PAGE_MAX}")
    if asked.page_token and not asked.page_token.isdigit():
        raise _wrong("pageToken", "no such page")
    return asked


def _search(asked: _Search, entries: list[View], seen: Seen) -> View:
    words = re.findall(r"\w+", asked.query.text.lower())[:_WORDS_MAX]
    found: list[View] = [
        {**entry, "score": score, "source": seen.base}
        for entry in entries
        if _passes(entry, asked.query.filter) and (score := _score(entry, words)) > 0
    ]
    found.sort(key=lambda entry: (-entry["score"], entry["displayName"]))
    start = int(asked.page_token or 0)
    end = start + asked.page_size
    more = {"pageToken": str(end)} if end < len(found) else {}
    return {"results": found[start:end], **more}


def _passes(entry: View, wanted: dict[str, str | list[str]]) -> bool:
    """Whether an entry has, for every field that is named, one of the values that are."""
    for field, values in wanted.items():
        held: Any = entry.get(field, ())
        mine = {held} if isinstance(held, str) else set(held)
        if mine.isdisjoint([values] if isinstance(values, str) else values):
            return False
    return True


def _score(entry: View, words: list[str]) -> int:
    if not words:
        return _FOUND
    said = [entry["displayName"], entry.get("description", "")]
    said += [*entry.get("tags", ()), *entry.get("capabilities", ())]
    known = set(re.findall(r"\w+", re.sub(r"[_.-]", " ", " ".join(said)).lower()))
    return _FOUND * sum(word in known for word in words) // len(words)


def _wrong(path: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {message}", errors=(Problem(path=path, message=message),))
