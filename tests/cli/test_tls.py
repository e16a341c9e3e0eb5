"""TLS from the command line: a CA of one's own, and what is said without one, or without TLS."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.certificate import certificate
from nodrop.client.transports.connecting import connect
from nodrop.model.errors import CertificateUntrustedError
from nodrop.servers.listener.server import TLS

Run = Callable[..., Any]

pytestmark = pytest.mark.timeout(120)  # real processes, on a machine that does other things too


@contextmanager
def up(home: Path, *options: str | Path) -> Generator[dict[str, Any]]:
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    command = [sys.executable, "-m", "nodrop.cli", "up", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, *map(str, options)],
        env=inherited | {"NODROP_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TLS:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(home: Path, tls: TLS) -> Generator[str]:
    with up(home, "--tls-cert", tls.certificate, "--tls-key", tls.key) as told:
        yield told["url"]


@pytest.fixture
def elsewhere(nodrop: Run, url: str, tmp_path: Path) -> Run:
    """Commands of another user, who knows where the relay is and has a token."""
    token = nodrop("token", "remote", "--json").json["token"]

    def run(*arguments: str | Path, **variables: str) -> Any:
        named = {"NODROP_HOME": str(tmp_path / "other"), "NODROP_URL": url, "NODROP_TOKEN": token}
        return nodrop(*arguments, **(named | variables))

    return run


@pytest.mark.parametrize("arguments", [("inbox",), ("inbox", "--agent", "remote")])
def test_a_certificate_that_is_not_trusted_is_called_that(elsewhere: Run, arguments: Any) -> None:
    refused = elsewhere(*arguments)
    assert refused.code == 1
    assert "The relay's certificate is not trusted  certificate_untrusted" in refused.err
    assert "self-signed certificate" in refused.err
    assert "--ca FILE" in refused.err
    assert "nodrop up" not in refused.err


def test_its_ca_is_named_by_a_flag_a_variable_or_the_file(
    elsewhere: Run, tls: TLS, tmp_path: Path
) -> None:
    assert elsewhere("inbox", "--ca", tls.certificate).code == 0
    assert elsewhere("inbox", "--agent", "remote", "--ca", tls.certificate).code == 0
    assert elsewhere("inbox", NODROP_CA=str(tls.certificate)).code == 0
    (tmp_path / "nodrop.toml").write_text(f'ca = "{tls.certificate}"\n')
    assert elsewhere("inbox").code == 0


def test_the_users_own_clients_trust_the_certificate_of_the_users_own_relay(
    nodrop: Run, url: str
) -> None:
    assert url.startswith("https://")
    assert nodrop("inbox").code == 0
    checks = {check["name"]: check for check in nodrop("doctor", "--json").json["checks"]}
    assert checks["relay"]["status"] == "ok"


def test_joining_remembers_the_ca(nodrop: Run, url: str, tls: TLS, tmp_path: Path) -> None:
    invitation = nodrop("invite", "bob", "--json").json["invitation"]
    other = {"NODROP_HOME": str(tmp_path / "other")}
    refused = nodrop("join", invitation, "--url", url, **other)
    assert (refused.code, "certificate_untrusted" in refused.err) == (1, True)
    assert nodrop("join", invitation, "--url", url, "--ca", tls.certificate, **other).code == 0
    assert nodrop("inbox", "--agent", "bob", **other).code == 0


def test_a_file_that_holds_no_certificate_is_refused(elsewhere: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    for name in ("empty.pem", "missing.pem"):
        refused = elsewhere("inbox", "--ca", tmp_path / name, "--json")
        assert (refused.code, refused.json["code"]) == (2, "invalid_request")
        assert name in refused.json["detail"]


def test_a_command_that_works_as_an_agent_is_told_the_ca(
    nodrop: Run, url: str, tls: TLS, tmp_path: Path
) -> None:
    token = nodrop("token", "worker", "--json").json["token"]
    named = {"NODROP_HOME": str(tmp_path / "other"), "NODROP_URL": url, "NODROP_TOKEN": token}
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    command = [sys.executable, "-m", "nodrop.cli", "work", "worker", "--exec", "echo $NODROP_CA"]
    with subprocess.Popen(
        [*command, "--ca", str(tls.certificate)], env=inherited | named, stderr=subprocess.DEVNULL
    ) as worker:
        try:
            done = nodrop("send", "--to", "worker", "--wait", "60s")
        finally:
            worker.kill()
    assert done.out.splitlines()[-1] == str(tls.certificate), done.err


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_the_sdk_takes_a_ca(
    url: str, home: Path, tls: TLS, tmp_path: Path, transport: Any
) -> None:
    token = json.loads((home / "credentials").read_text())["operator"]

    async def ask(ca: Path | None) -> str:
        async with connect(
            url, token=token, agent="me", home=tmp_path / "other", ca=ca, transport=transport
        ) as me:
            return (await me.call("whoami", {}))["agent"]

    assert await ask(tls.certificate) == "me"
    with pytest.raises(CertificateUntrustedError, match="self-signed"):
        await ask(None)


def test_every_address_without_tls_is_warned_about_and_the_true_one_is_told(
    tmp_path: Path,
) -> None:
    with up(tmp_path, "--host", "0.0.0.0") as told:  # noqa: S104  # what is warned about
        port = told["url"].rpartition(":")[2]
    assert told["others"] == f"http://{socket.gethostname()}:{port}"
    [warning] = told["warnings"]
    assert warning.startswith("Listening on 0.0.0.0 without TLS: tokens and payloads travel")
    assert "--tls-cert" in warning


@pytest.mark.parametrize("secured", [True, False])
def test_nothing_is_warned_about_with_tls_or_on_loopback(
    tls: TLS, tmp_path: Path, *, secured: bool
) -> None:
    options = ["--host", "0.0.0.0", "--tls-cert", tls.certificate, "--tls-key", tls.key]  # noqa: S104
    with up(tmp_path, *(options if secured else [])) as told:
        assert told["warnings"] == []
        assert (told["others"] is None) is not secured
