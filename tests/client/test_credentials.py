"""Tokens: kept in a file of this user, minted on first use, renewed once."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nodrop.client.auth.credentials import Credentials, CredentialsFile
from nodrop.client.auth.tokens import FixedToken, MintedToken


@pytest.fixture
def file(tmp_path: Path) -> CredentialsFile:
    return CredentialsFile(tmp_path / "home")


class Mint:
    """Makes tokens, and remembers for whom and with what."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    async def __call__(self, operator: str, agent: str) -> str:
        self.made.append((operator, agent))
        return f"nd_{agent}_{len(self.made)}"


@pytest.fixture
def mint() -> Mint:
    return Mint()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_is_for_its_owner_alone(file: CredentialsFile) -> None:
    file.write(Credentials(url="http://127.0.0.1:1", operator="nd_op"))
    assert mode(file.path) == 0o600
    assert mode(file.path.parent) == 0o700
    file.save_agent("code_agent", "nd_1")
    assert mode(file.path) == 0o600


def test_what_is_written_is_read_again(file: CredentialsFile) -> None:
    assert file.read() == Credentials()
    credentials = Credentials(url="u", team="t", operator="nd_op", agents={"a": "nd_1"})
    file.write(credentials)
    assert file.read() == credentials
    file.save_agent("b", "nd_2")
    assert file.read().agents == {"a": "nd_1", "b": "nd_2"}


def test_nothing_half_written_is_left_behind(file: CredentialsFile) -> None:
    file.write(Credentials(operator="nd_op"))
    file.path.unlink()
    file.path.mkdir()  # which cannot be replaced by a file
    with pytest.raises(OSError, match="credentials"):
        file.write(Credentials(operator="nd_other"))
    assert [path.name for path in file.path.parent.iterdir()] == ["credentials"]


async def test_a_token_is_minted_on_first_use_and_kept(file: CredentialsFile, mint: Mint) -> None:
    file.write(Credentials(operator="nd_op"))
    tokens = MintedToken(file, "code_agent", mint)
    assert await tokens.current() == "nd_code_agent_1"
    assert await tokens.current() == "nd_code_agent_1"
    assert mint.made == [("nd_op", "code_agent")]
    assert file.read().agents == {"code_agent": "nd_code_agent_1"}


async def test_a_refused_token_is_minted_anew(file: CredentialsFile, mint: Mint) -> None:
    file.write(Credentials(operator="nd_op", agents={"code_agent": "nd_old"}))
    tokens = MintedToken(file, "code_agent", mint)
    assert await tokens.current() == "nd_old"
    assert await tokens.renewed("nd_old") == "nd_code_agent_1"
    assert file.read().agents == {"code_agent": "nd_code_agent_1"}


async def test_a_token_that_another_process_renewed_is_taken(
    file: CredentialsFile, mint: Mint
) -> None:
    file.write(Credentials(operator="nd_op", agents={"code_agent": "nd_new"}))
    assert await MintedToken(file, "code_agent", mint).renewed("nd_old") == "nd_new"
    assert mint.made == []


async def test_the_person_uses_the_operators_token(file: CredentialsFile, mint: Mint) -> None:
    file.write(Credentials(operator="nd_op"))
    tokens = MintedToken(file, "me", mint)
    assert await tokens.current() == "nd_op"
    assert await tokens.renewed("nd_op") is None
    assert mint.made == []


async def test_without_credentials_there_is_no_token(file: CredentialsFile, mint: Mint) -> None:
    assert await MintedToken(file, "code_agent", mint).current() is None
    assert mint.made == []


async def test_a_token_that_was_handed_in_is_all_there_is() -> None:
    assert await FixedToken("nd_1").current() == "nd_1"
    assert await FixedToken("nd_1").renewed("nd_1") is None


def test_agents_that_join_at_once_are_all_remembered(tmp_path: Path) -> None:
    joining = "import sys; from pathlib import Path; from nodrop.client.auth.credentials import *; "
    joining += "[CredentialsFile(Path(sys.argv[1])).save_agent(f'{sys.argv[2]}{n}', 't') "
    joining += "for n in range(20)]"
    processes = [
        subprocess.Popen([sys.executable, "-c", joining, str(tmp_path), name]) for name in "ab"
    ]
    assert [process.wait(30) for process in processes] == [0, 0]
    assert len(CredentialsFile(tmp_path).read().agents) == 40
