"""`nodrop notify`: where what waits for a person is sent to."""

import json
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def hook() -> Generator[tuple[str, list[dict[str, Any]]]]:
    """A server on this machine, and what came to it."""
    came: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  # says nothing
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", came
    server.shutdown()
    serving.join(20)
    server.server_close()


def test_a_test_arrives_and_so_does_what_comes_later(nodrop: Run, hook: Any) -> None:
    url, came = hook
    added = nodrop("notify", "add", url, "--webhook", "--allow-private", "--test", "--name", "h")
    assert added.code == 0, added.err
    assert added.out.startswith("whsec_")
    assert came[0]["item"]["summary"].startswith("This is a test of the outlet h")
    assert "h" in nodrop("notify", "list").out
    assert nodrop("notify", "remove", "h").code == 0
    assert "Nothing is sent on" in nodrop("notify", "list").out


def test_a_second_place_does_not_take_the_place_of_the_first_unasked(nodrop: Run) -> None:
    assert nodrop("notify", "add", "https://one.example/", "--webhook").code == 0
    refused = nodrop("notify", "add", "https://two.example/", "--webhook")
    assert refused.code == 2
    assert "notify leads to https://one.example/ already" in refused.err
    again = nodrop("notify", "add", "https://two.example/", "--webhook", "--name", "notify")
    assert again.code == 0
    assert "two.example" in nodrop("notify", "list").out
    nodrop("notify", "remove", "notify")


def test_a_test_that_cannot_arrive_says_why_and_what_ends_it(nodrop: Run) -> None:
    place = ("http://127.0.0.1:9/", "--webhook", "--name", "x")
    added = nodrop("notify", "add", *place, "--test", "--allow-private")
    assert added.code == 1
    assert "the test did not arrive: " in added.err
    assert "127.0.0.1:9" in added.err
    assert "nodrop notify remove x" in added.err
    assert "http://127.0.0.1:9/" in nodrop("notify", "list").out
    assert nodrop("notify", "remove", "x").code == 0
    gone = nodrop("notify", "remove", "x")
    assert (gone.code, "nodrop notify list" in gone.err) == (3, True)


def test_an_address_that_is_not_public_is_refused_at_once(nodrop: Run) -> None:
    refused = nodrop("notify", "add", "http://10.0.0.1/", "--webhook", "--test", "--name", "x")
    assert refused.code == 2
    assert "10.0.0.1 is not a public address" in refused.err
    assert "Nothing is sent on" in nodrop("notify", "list").out
