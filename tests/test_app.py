import asyncio
import base64
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from nodrop.app import (
    TLS,
    KeyFile,
    Served,
    SystemClock,
    SystemIds,
    listening,
    open_embedded,
    open_relay,
    serve,
)
from nodrop.client.auth.credentials import CredentialsFile
from nodrop.model.errors import (
    StoreFullError,
    StoreInUseError,
    UnauthenticatedError,
    UnavailableError,
)
from nodrop.protocol.requests import GetCheckpoint, RevokeToken
from nodrop.relay.coordination.findings import Findings
from nodrop.relay.relay import operator_of

SECONDS_MAX = 20.0


# --- time, ids, keys -----------------------------------------------------------------------------


async def test_the_clock_never_runs_backwards_whatever_the_wall_clock_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SystemClock()
    before = clock.now()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert clock.now() >= before
    target = clock.now() + 5
    async with asyncio.timeout(SECONDS_MAX):
        await clock.sleep_until(target)
    assert clock.now() >= target


def test_ids_made_later_sort_later() -> None:
    ids = [SystemIds().new() for _ in range(10_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_a_secret_is_never_the_same() -> None:
    assert len({SystemIds().secret() for _ in range(100)}) == 100


def test_the_key_of_a_relay_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "relay.pem"
    signer = KeyFile(path)
    assert not path.exists()
    signature = signer.sign(b"message")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["relay.pem"]
    assert KeyFile(path).public_key == signer.public_key

    key = Ed25519PublicKey.from_public_bytes(unpadded(signer.public_key))
    key.verify(unpadded(signature), b"message")
    with pytest.raises(InvalidSignature):
        key.verify(unpadded(signature), b"another")


def unpadded(text: str) -> bytes:
    assert "=" not in text
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# --- a relay on a database -----------------------------------------------------------------------


async def test_what_a_relay_was_given_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    database = tmp_path / "team.db"
    async with open_relay(database, home=tmp_path) as relay:
        await relay.ensure_token("default", agent="a", role="agent", secret="s")
    async with open_relay(database, home=tmp_path) as relay:
        assert (await relay.authenticate("s")).agent == "a"


async def test_a_database_that_is_in_use_says_so(tmp_path: Path) -> None:
    database = tmp_path / "team.db"
    async with open_relay(database, home=tmp_path):
        with pytest.raises(StoreInUseError) as refused:
            async with open_relay(database, home=tmp_path):
                pass
    assert refused.value.address is None


# --- embedded ------------------------------------------------------------------------------------


async def test_connections_to_one_file_share_a_relay_until_the_last_is_closed(
    tmp_path: Path,
) -> None:
    database = tmp_path / "team.db"
    mine = await open_embedded(database, agent="inbox_monitor", home=tmp_path)
    theirs = await open_embedded(str(database), agent="code_agent", home=tmp_path)
    offered = await mine.call("offer", {"to": "code_agent", "payload": 1})
    await mine.close()
    await mine.close()
    taken = await theirs.call("take", {})
    assert [d["handoff"]["id"] for d in taken["deliveries"]] == [offered["handoff"]["id"]]
    await theirs.close()
    async with open_relay(database, home=tmp_path):  # nobody holds the file any more
        pass


async def test_a_file_may_be_embedded_again_after_it_was_closed(tmp_path: Path) -> None:
    for times in (1, 2):
        me = await open_embedded(tmp_path / "team.db", home=tmp_path)
        await me.call("note_team", {"text": "here"})
        entries = (await me.call("log", {"type": "team.noted.v1"}))["entries"]
        assert len(entries) == times
        await me.close()


async def test_connections_opened_at_the_same_time_share_a_relay_too(tmp_path: Path) -> None:
    opening = [open_embedded(tmp_path / "team.db", home=tmp_path) for _ in range(3)]
    transports = await asyncio.gather(*opening)
    await transports[0].call("note_team", {"text": "here"})
    for transport in transports:
        entries = (await transport.call("log", {"type": "team.noted.v1"}))["entries"]
        assert len(entries) == 1
        await transport.close()


async def test_a_file_belongs_to_one_event_loop_and_memory_to_each(tmp_path: Path) -> None:
    database = str(tmp_path / "team.db")
    mine = [await open_embedded(place, home=tmp_path) for place in (database, ":memory:")]

    async def open_elsewhere(place: str) -> None:
        await (await open_embedded(place, home=tmp_path)).close()

    with pytest.raises(StoreInUseError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, open_elsewhere(database))
    await asyncio.to_thread(asyncio.run, open_elsewhere(":memory:"))
    for transport in mine:
        await transport.close()


async def test_a_relay_in_memory_is_shared_and_then_forgotten(tmp_path: Path) -> None:
    one = await open_embedded(":memory:", agent="one", home=tmp_path)
    other = await open_embedded(":memory:", agent="other", home=tmp_path)
    await one.call("offer", {"to": "other"})
    assert len((await other.call("inbox", {}))["items"]) == 1
    await one.close()
    await other.close()
    again = await open_embedded(":memory:", agent="other", home=tmp_path)
    assert (await again.call("inbox", {}))["items"] == []
    await again.close()


async def test_only_the_person_is_an_operator_of_an_embedded_relay(tmp_path: Path) -> None:
    me = await open_embedded(":memory:", home=tmp_path)
    agent = await open_embedded(":memory:", agent="code_agent", home=tmp_path)
    assert (await me.call("create_token", {"agent": "x"}))["agent"] == "x"
    with pytest.raises(Exception, match="only an operator"):
        await agent.call("create_token", {"agent": "x"})
    await me.close()
    await agent.close()


async def test_a_file_that_a_server_holds_sends_one_there(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        with pytest.raises(StoreInUseError) as refused:
            await open_embedded(tmp_path / "nodrop.db", home=tmp_path)
        assert refused.value.address == server["url"]


# --- nodrop up -----------------------------------------------------------------------------------

UP = """
import sys
from pathlib import Path
import msgspec
from nodrop.app import run, serve

def ready(served):
    print(msgspec.json.encode(served, enc_hook=str).decode(), flush=True)

run(serve(Path(sys.argv[1]), port=0, ready=ready))
"""


@contextmanager
def served(home: Path) -> Generator[dict[str, Any]]:
    """Serve `home` in another process; what it tells once it listens, and its process."""
    with subprocess.Popen(
        [sys.executable, "-c", UP, str(home)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline()) | {"process": process}
        finally:
            process.kill()


def get(url: str, token: str | None = None) -> int:
    request = urllib.request.Request(url)  # noqa: S310  # the address of our own server
    if token:
        request.add_header("authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=SECONDS_MAX) as response:  # noqa: S310  # same
        return response.status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_relay_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path) as server:
        credentials = CredentialsFile(tmp_path).read()
        assert (credentials.url, credentials.team) == (server["url"], "default")
        assert stat.S_IMODE((tmp_path / "credentials").stat().st_mode) == 0o600
        assert get(f"{server['url']}/v1/handoffs", credentials.operator) == 200
        address = json.loads((tmp_path / "nodrop.db.address").read_bytes())
        assert address == {"url": server["url"], "pid": server["process"].pid}

        server["process"].send_signal(number)
        assert server["process"].wait(SECONDS_MAX) == 0
    assert not (tmp_path / "nodrop.db.address").exists()
    assert not (tmp_path / "nodrop.db-wal").exists()


def test_a_relay_that_was_killed_leaves_nothing_in_the_way_of_the_next(tmp_path: Path) -> None:
    with served(tmp_path) as first:
        operator = CredentialsFile(tmp_path).read().operator
        first["process"].kill()
        first["process"].wait(SECONDS_MAX)
    with served(tmp_path) as second:
        assert get(f"{second['url']}/v1/handoffs", operator) == 200
        assert CredentialsFile(tmp_path).read().url == second["url"]


async def serve_once(home: Path, *, port: int = 0, **options: Any) -> Served:
    """Serve `home` until it says that it is ready."""
    stop, told = asyncio.Event(), list[Served]()

    def ready(served: Served) -> None:
        told.append(served)
        stop.set()

    async with asyncio.timeout(SECONDS_MAX):
        await serve(home, port=port, ready=ready, stop=stop, **options)
    return told[0]


@pytest.mark.parametrize("watch", [True, False])
async def test_the_relay_follows_its_log_unless_it_is_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, watch: bool
) -> None:
    followed: list[str] = []
    stop = asyncio.Event()

    async def follow(_: Findings, team: str) -> None:
        followed.append(team)
        stop.set()

    def ready(_: Served) -> None:
        if not watch:
            stop.set()

    monkeypatch.setattr(Findings, "follow", follow)
    async with asyncio.timeout(SECONDS_MAX):
        await serve(tmp_path, port=0, ready=ready, stop=stop, watch=watch)
    assert followed == (["default"] if watch else [])


async def test_the_operators_token_is_kept_as_long_as_it_is_valid(tmp_path: Path) -> None:
    file = CredentialsFile(tmp_path)
    await serve_once(tmp_path)
    first = file.read()
    file.save_agent("code_agent", "token")
    await serve_once(tmp_path)
    second = file.read()
    assert second.operator == first.operator
    assert second.agents == {"code_agent": "token"}

    assert first.operator is not None
    async with open_relay(tmp_path / "nodrop.db", home=tmp_path) as relay:
        caller = await relay.authenticate(first.operator)
        assert (caller.agent, caller.operator) == ("me", True)
        request = RevokeToken(token_id=caller.token_id or "")
        await relay.call(operator_of("default"), "revoke_token", request, name=caller.token_id)
    await serve_once(tmp_path)
    third = file.read()
    assert third.operator not in {None, first.operator}
    async with open_relay(tmp_path / "nodrop.db", home=tmp_path) as relay:
        with pytest.raises(UnauthenticatedError):
            await relay.authenticate(first.operator)


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_full_disk_does_not_keep_a_relay_from_serving_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = await serve_once(tmp_path)
    before = CredentialsFile(tmp_path).read()
    monkeypatch.setattr("tempfile.mkstemp", no_room)
    port = int(first.url.rpartition(":")[2])
    assert (await serve_once(tmp_path, port=port)).url == first.url
    assert CredentialsFile(tmp_path).read() == before
    assert "the disk is full, and the relay serves all the same" in caplog.text


async def test_a_relay_that_cannot_tell_its_clients_where_it_is_says_that_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.mkstemp", no_room)
    with pytest.raises(StoreFullError, match=r"no room for .*credentials"):
        await serve_once(tmp_path)
    monkeypatch.undo()
    await serve_once(tmp_path)
    assert CredentialsFile(tmp_path).read().operator is not None


async def test_a_key_that_there_is_no_room_for_is_a_full_disk_and_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_relay(":memory:", home=tmp_path) as relay:
        with monkeypatch.context() as full:
            full.setattr("tempfile.mkstemp", no_room)
            with pytest.raises(StoreFullError):
                await relay.call(operator_of("default"), "checkpoints", GetCheckpoint())
        await relay.call(operator_of("default"), "checkpoints", GetCheckpoint())
    assert (tmp_path / "keys" / "relay.pem").exists()


async def test_tokens_in_clear_are_warned_of(tmp_path: Path) -> None:
    assert (await serve_once(tmp_path)).warnings == ()
    everywhere = await serve_once(tmp_path, host="0.0.0.0")  # noqa: S104  # what is warned of
    assert "in clear" in everywhere.warnings[0]
    assert everywhere.url.startswith("http://127.0.0.1:")


async def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    missing = TLS(certificate=tmp_path / "none.pem", key=tmp_path / "none.pem")
    async with open_relay(":memory:", home=tmp_path) as relay:
        with pytest.raises(UnavailableError, match="certificate"):
            async with listening(relay, tls=missing):
                pass


async def test_a_node_has_its_key_from_the_start(database: str, tmp_path: Path) -> None:
    """The other nodes of its database need the same: there must be something to copy."""
    stop = asyncio.Event()
    async with asyncio.timeout(30):
        await serve(tmp_path, store=database, port=0, ready=lambda _: stop.set(), stop=stop)
    assert (tmp_path / "keys" / "relay.pem").exists()
