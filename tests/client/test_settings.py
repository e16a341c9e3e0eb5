"""Where the relay is and who is asking."""

from pathlib import Path

import pytest

from nodrop.client.auth.credentials import Credentials, CredentialsFile
from nodrop.client.settings import Settings, find_home, load
from nodrop.client.transports.address import Embedded, Remote, parse


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def settings(home: Path, directory: Path, *, environment: dict[str, str] | None = None) -> Settings:
    return load(environment={"NODROP_HOME": str(home), **(environment or {})}, directory=directory)


def test_without_anything_it_is_the_relay_of_this_user(tmp_path: Path, home: Path) -> None:
    found = settings(home, tmp_path)
    assert (found.address, found.agent, found.token) == ("http://127.0.0.1:6377", "me", None)
    assert (found.team, found.home) == (None, home)


def test_flags_come_before_environment_before_file_before_home(tmp_path: Path, home: Path) -> None:
    CredentialsFile(home).write(Credentials(url="http://127.0.0.1:1"))
    assert settings(home, tmp_path).address == "http://127.0.0.1:1"
    (tmp_path / "nodrop.toml").write_text('url = "http://127.0.0.1:2"\nagent = "file_agent"\n')
    assert settings(home, tmp_path).address == "http://127.0.0.1:2"
    environment = {"NODROP_URL": "http://127.0.0.1:3"}
    found = settings(home, tmp_path, environment=environment)
    assert (found.address, found.agent) == ("http://127.0.0.1:3", "file_agent")
    found = load(
        "http://127.0.0.1:4", agent="flag_agent", environment=environment, directory=tmp_path
    )
    assert (found.address, found.agent) == ("http://127.0.0.1:4", "flag_agent")


def test_every_setting_has_a_variable(tmp_path: Path, home: Path) -> None:
    environment = {"NODROP_TOKEN": "nd_1", "NODROP_AGENT": "a", "NODROP_TEAM": "t"}
    found = settings(home, tmp_path, environment=environment)
    assert (found.token, found.agent, found.team) == ("nd_1", "a", "t")


def test_a_token_says_itself_whose_it_is(tmp_path: Path, home: Path) -> None:
    assert settings(home, tmp_path, environment={"NODROP_TOKEN": "nd_1"}).agent is None


def test_the_home_may_be_named_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "nodrop.toml").write_text('home = "/srv/nodrop"\n')
    assert load(environment={}, directory=tmp_path).home == Path("/srv/nodrop")
    assert find_home("/else", environment={}, written="/srv/nodrop") == Path("/else")


@pytest.mark.parametrize("text", ["url = ", 'adress = "x"\n', "url = 3\n"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, home: Path, text: str) -> None:
    (tmp_path / "nodrop.toml").write_text(text)
    with pytest.raises(ValueError, match=r"nodrop\.toml"):
        settings(home, tmp_path)


def test_damaged_credentials_are_named(tmp_path: Path, home: Path) -> None:
    home.mkdir()
    (home / "credentials").write_text("{")
    with pytest.raises(ValueError, match="credentials is damaged"):
        settings(home, tmp_path)


@pytest.mark.parametrize(
    ("address", "http", "channel"),
    [
        ("http://127.0.0.1:6377", "http://127.0.0.1:6377/v1", "ws://127.0.0.1:6377/v1/channel"),
        ("https://relay.example/", "https://relay.example/v1", "wss://relay.example/v1/channel"),
        ("ws://localhost:1", "http://localhost:1/v1", "ws://localhost:1/v1/channel"),
        ("wss://h/below", "https://h/below/v1", "wss://h/below/v1/channel"),
    ],
)
def test_a_web_address_is_a_relay(address: str, http: str, channel: str) -> None:
    place = parse(address)
    assert isinstance(place, Remote)
    assert (place.http, place.channel) == (http, channel)


def test_a_named_team_has_its_own_path() -> None:
    place = parse("http://h:1", team="blue team")
    assert isinstance(place, Remote)
    assert place.http == "http://h:1/teams/blue%20team/v1"


@pytest.mark.parametrize("path", ["team.db", "./a/b.db", "/srv/nodrop.db", ":memory:", "C:\\x.db"])
def test_anything_else_is_a_path(path: str) -> None:
    assert parse(path) == Embedded(path=path)


@pytest.mark.parametrize("address", ["ftp://h", "http://", "postgres://h/db"])
def test_a_strange_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="no address of a relay"):
        parse(address)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("http://127.0.0.1:1", True),
        ("http://localhost:1", True),
        ("http://[::1]:1", True),
        ("http://127.8.8.8", True),
        ("http://192.168.1.4:1", False),
        ("https://localhost.example", False),
    ],
)
def test_this_machine_is_known(address: str, *, loopback: bool) -> None:
    place = parse(address)
    assert isinstance(place, Remote)
    assert place.loopback is loopback


def test_a_relay_is_the_same_whatever_this_machine_is_called() -> None:
    place = parse("http://localhost:6377")
    assert isinstance(place, Remote)
    assert place.same_relay("http://127.0.0.1:6377/")
    assert not place.same_relay("http://127.0.0.1:7000")
    assert not place.same_relay("http://relay.example:6377")
    assert not place.same_relay("team.db")
