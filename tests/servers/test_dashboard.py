import gzip
from pathlib import Path

import pytest
from starlette.applications import Starlette

from kit.asgi import Visitor
from nodrop.relay.relay import Relay
from nodrop.servers.http import dashboard
from nodrop.servers.http.door import HTTPDoor

PAGE = b'<!doctype html><script type="module" src="./assets/index-1.js"></script>'


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_bytes(PAGE)
    (tmp_path / "assets" / "index-1.js").write_bytes(b"go()")
    (tmp_path / "secret.txt").write_bytes(b"not an asset")
    return tmp_path


@pytest.fixture
def visitor(built: Path) -> Visitor:
    return Visitor(Starlette(routes=dashboard.routes(built)))


async def test_the_page_is_served_with_a_policy_that_allows_nothing_inline(
    visitor: Visitor,
) -> None:
    page = await visitor.request("GET", "/")
    policy = dict(
        part.split(" ", 1) for part in page.headers["content-security-policy"].split("; ")
    )
    assert page.body == PAGE
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-cache"
    assert page.headers["referrer-policy"] == "no-referrer"


async def test_assets_are_kept_forever_and_nothing_else_is_served(visitor: Visitor) -> None:
    asset = await visitor.request("GET", "/assets/index-1.js")
    assert (asset.body, asset.headers["content-type"]) == (
        b"go()",
        "text/javascript; charset=utf-8",
    )
    assert "immutable" in asset.headers["cache-control"]
    for path in (
        "/assets/none.js",
        "/assets/..%2Fsecret.txt",
        "/assets/../secret.txt",
        "/secret.txt",
    ):
        assert (await visitor.request("GET", path)).status == 404


async def test_whoever_takes_gzip_gets_it(visitor: Visitor) -> None:
    asset = await visitor.with_headers(**{"accept-encoding": "br, gzip"}).request(
        "GET", "/assets/index-1.js"
    )
    assert asset.headers["content-encoding"] == "gzip"
    assert gzip.decompress(asset.body) == b"go()"


async def test_a_checkout_without_the_page_says_how_to_build_it(tmp_path: Path) -> None:
    visitor = Visitor(Starlette(routes=dashboard.routes(tmp_path)))
    page = await visitor.request("GET", "/")
    assert page.status == 200
    assert b"make page" in page.body


async def test_the_page_can_be_switched_off(relay: Relay) -> None:
    without = Visitor(HTTPDoor(relay, dashboard=False))
    assert (await without.request("GET", "/")).json()["code"] == "not_found"
    assert (await without.request("GET", "/assets/index-1.js")).status == 404
    assert (await without.request("GET", "/healthz")).status == 200
