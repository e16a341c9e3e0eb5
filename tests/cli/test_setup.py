import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodrop.cli.mcp import folder_name
from nodrop.cli.setup import start
from nodrop.cli.setup.edits import Block, Entry, JsonFile, OwnFile

Run = Callable[..., Any]
CLIENTS = ("claude", "codex", "cursor", "openclaw")
ABSENT = Path("/nonexistent")


@pytest.fixture(autouse=True)
def starts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is configured starts; tests about that start it for real."""

    async def why_not(_command: Sequence[str]) -> None: ...

    if "for_real" not in request.fixturenames:
        monkeypatch.setattr(start, "why_not", why_not)


@pytest.fixture
def for_real() -> None:
    """Have `starts` leave everything as it is."""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of somebody who uses coding agents; commands run in `project`."""
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CODEX_HOME", "OPENCLAW_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def project(user: Path, nodrop: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert nodrop, "its fixture changes directory first"
    folder = user / "My Project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def snapshot(user: Path) -> dict[str, bytes | None]:
    """Everything below a directory, folders too, byte for byte."""
    return {
        str(path.relative_to(user)): path.read_bytes() if path.is_file() else None
        for path in sorted(user.rglob("*"))
    }


def has(client: str, user: Path, project: Path) -> dict[Path, str]:
    """Files with content of the user's own, as odd as they come."""
    json_text = '{\n    "theme": "dark",\n    "empty": {},\n    "zeta": [1,2],\n    "alpha": "ü"\n}'
    servers = '{"mcpServers": {"other": {"command": "x"}}, "z": 1, "a": 2}\n'
    hooks = {"hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "mine"}]}]}}
    return {
        "claude": {
            project / ".mcp.json": servers,
            project / ".claude" / "settings.json": json.dumps(hooks),
        },
        "codex": {
            user / ".codex" / "config.toml": 'model = "o9"\n\n[mcp_servers.other]\ncommand = "x"',
            project / "AGENTS.md": "# Mine\r\n\r\nBe kind.",
            project / ".codex" / "hooks.json": json.dumps(hooks),
        },
        "cursor": {
            project / ".cursor" / "mcp.json": json_text,
            project
            / ".cursor"
            / "hooks.json": '{"version": 1, "hooks": {"stop": [{"command": "x"}]}}',
        },
        "openclaw": {user / ".openclaw" / "openclaw.json": json_text},
    }[client]


def put(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("own", [False, True], ids=["nothing there", "files of the user's"])
def test_setting_up_and_removing_leaves_everything_as_it_was(
    nodrop: Run, user: Path, project: Path, client: str, *, own: bool
) -> None:
    put(has(client, user, project) if own else {})
    before = snapshot(user)
    assert nodrop("setup", client).code == 0
    assert snapshot(user) != before
    assert nodrop("setup", client, "--remove").code == 0
    assert snapshot(user) == before


@pytest.mark.parametrize("client", CLIENTS)
def test_setting_up_again_changes_nothing_and_another_name_replaces_the_first(
    nodrop: Run, user: Path, project: Path, client: str
) -> None:
    put(has(client, user, project))
    before = snapshot(user)
    nodrop("setup", client)
    first = snapshot(user)
    again = nodrop("setup", client, "--json").json
    assert {file["did"] for file in again["files"]} == {"unchanged"}
    assert snapshot(user) == first
    nodrop("setup", client, "--agent", "renamed")
    renamed = b"".join(data or b"" for data in snapshot(user).values())
    assert b"renamed" in renamed
    assert f"{client}-My-Project".encode() not in renamed
    nodrop("setup", client, "--remove")
    assert snapshot(user) == before


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dry_run_shows_everything_and_writes_nothing(
    nodrop: Run, user: Path, project: Path, client: str
) -> None:
    put(has(client, user, project))
    before = snapshot(user)
    shown = nodrop("setup", client, "--dry-run")
    assert shown.code == 0
    assert "mcp" in shown.out
    assert snapshot(user) == before


def test_claude_gets_a_server_hooks_and_a_skill(nodrop: Run, home: Path, project: Path) -> None:
    nodrop("setup", "claude")
    server = json.loads((project / ".mcp.json").read_text())["mcpServers"]["nodrop"]
    assert Path(server["command"]).is_absolute()
    assert server["args"] == ["mcp", "--agent", "claude-My-Project", "--home", str(home.resolve())]
    hooks = json.loads((project / ".claude/settings.json").read_text())["hooks"]
    assert set(hooks) == {"SessionStart", "UserPromptSubmit"}
    skill = (project / ".claude/skills/nodrop/SKILL.md").read_text()
    assert skill.startswith("---\nname: nodrop\n")
    assert "nodrop work NAME --exec" in skill


def test_codex_gets_one_entry_for_all_folders_and_keeps_the_others(
    nodrop: Run, user: Path, project: Path
) -> None:
    put(has("codex", user, project))
    nodrop("setup", "codex")
    config = tomllib.loads((user / ".codex/config.toml").read_text())
    assert (config["model"], config["mcp_servers"]["other"]) == ("o9", {"command": "x"})
    assert config["mcp_servers"]["nodrop"]["args"][:3] == ["mcp", "--client", "codex"]
    assert config["mcp_servers"]["nodrop"]["tool_timeout_sec"] >= 50
    assert "Be kind." in (project / "AGENTS.md").read_text()
    assert "Call `inbox`" in (project / "AGENTS.md").read_text()
    nodrop("setup", "codex", "--agent", "coder")
    config = tomllib.loads((user / ".codex/config.toml").read_text())
    assert config["mcp_servers"]["nodrop"]["args"][:3] == ["mcp", "--agent", "coder"]


def test_codex_rings_in_the_folder_with_the_name_it_has_there(nodrop: Run, project: Path) -> None:
    nodrop("setup", "codex")
    hooks = json.loads((project / ".codex/hooks.json").read_text())["hooks"]
    assert set(hooks) == {"SessionStart", "UserPromptSubmit"}
    for event in hooks.values():
        ((ring,),) = [group["hooks"] for group in event]
        assert ring["type"] == "command"
        assert " inbox --brief --agent codex-My-Project " in ring["command"]
        assert ring["command"].endswith(" 2>/dev/null || true")


def test_cursor_rings_at_the_start_of_a_session(nodrop: Run, project: Path) -> None:
    nodrop("setup", "cursor")
    document = json.loads((project / ".cursor/hooks.json").read_text())
    assert document["version"] == 1
    (ring,) = document["hooks"]["sessionStart"]
    assert " inbox --brief --agent cursor-My-Project " in ring["command"]
    assert " --json " in ring["command"]


def test_the_version_of_a_file_stays_for_hooks_that_came_since(nodrop: Run, project: Path) -> None:
    nodrop("setup", "cursor")
    file = project / ".cursor/hooks.json"
    document = json.loads(file.read_text())
    document["hooks"]["stop"] = [{"command": "mine"}]
    file.write_text(json.dumps(document))
    nodrop("setup", "cursor", "--remove")
    assert json.loads(file.read_text()) == {"version": 1, "hooks": {"stop": [{"command": "mine"}]}}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ["a b", "-a", "x" * 65, "../a", "ä"])
def test_a_name_that_no_relay_takes_is_refused_before_anything_is_written(
    nodrop: Run, user: Path, project: Path, client: str, name: str
) -> None:
    assert project.exists()
    before = snapshot(user)
    refused = nodrop("setup", client, f"--agent={name}")
    assert refused.code == 2
    assert "letters, digits, _ . - (at most 64)" in refused.err
    assert snapshot(user) == before


def test_what_would_change_nothing_says_so(nodrop: Run, project: Path) -> None:
    assert project.exists()
    assert "Nothing would change." in nodrop("setup", "cursor", "--remove", "--dry-run").err
    assert "Nothing would change." not in nodrop("setup", "cursor", "--dry-run").err
    nodrop("setup", "cursor")
    assert "Nothing would change." in nodrop("setup", "cursor", "--dry-run").err


@pytest.mark.parametrize("client", CLIENTS)
def test_the_offer_to_act_while_nobody_types_is_one_that_a_shell_takes(
    nodrop: Run, project: Path, client: str
) -> None:
    assert project.exists()
    told = nodrop("setup", client).err
    (offered,) = [line for line in told.splitlines() if "nodrop work" in line]
    command = shlex.split(offered.partition("→ ")[2], comments=True)
    assert command[:4] == ["nodrop", "work", f"{client}-My-Project", "--exec"]
    (headless,) = command[4:]
    assert "stdin" in headless or headless.endswith(" -")  # the handoff comes in there


def test_what_the_user_added_since_is_kept_when_we_go(
    nodrop: Run, user: Path, project: Path
) -> None:
    put(has("claude", user, project))
    nodrop("setup", "claude")
    servers = project / ".mcp.json"
    changed = json.loads(servers.read_text())
    changed["mcpServers"]["later"] = {"command": "y"}
    servers.write_text(json.dumps(changed))
    skill = project / ".claude/skills/nodrop/SKILL.md"
    skill.write_text(skill.read_text() + "My own words.\n")
    removed = {
        Path(file["path"]).name: file["did"]
        for file in nodrop("setup", "claude", "--remove", "--json").json["files"]
    }
    assert removed == {".mcp.json": "removed", "settings.json": "restored", "SKILL.md": "kept"}
    left = json.loads(servers.read_text())
    assert left == {
        "mcpServers": {"other": {"command": "x"}, "later": {"command": "y"}}, "z": 1, "a": 2,
    }  # fmt: skip
    assert list(left) == ["mcpServers", "z", "a"]
    assert "My own words." in skill.read_text()


UNEDITABLE = {
    "comments": ("openclaw", ".openclaw/openclaw.json", "{ /* mine */ mcp: {} }", "by hand"),
    "a list": ("openclaw", ".openclaw/openclaw.json", '{"mcp": []}', "by hand"),
    "taken": ("codex", ".codex/config.toml", '[mcp_servers.nodrop]\na = "x"\n', "nodrop already"),
    "no TOML": ("codex", ".codex/config.toml", "not toml", "the file is not TOML"),
}


@pytest.mark.parametrize("case", UNEDITABLE)
def test_a_file_that_cannot_be_edited_is_left_alone_and_so_are_the_others(
    nodrop: Run, user: Path, project: Path, case: str
) -> None:
    client, file, content, why = UNEDITABLE[case]
    put({user / file: content, project / "AGENTS.md": "mine\n"})
    before = snapshot(user)
    refused = nodrop("setup", client)
    assert refused.code == 2
    assert why in refused.err
    assert snapshot(user) == before


def test_an_unknown_client_is_a_usage_error(nodrop: Run) -> None:
    assert nodrop("setup", "emacs").code == 2


def test_a_token_is_never_written_down(nodrop: Run, user: Path, project: Path) -> None:
    assert project.exists()
    done = nodrop("setup", "claude", "--agent", "a", "--token", "nd_secret_token")
    assert "NODROP_TOKEN" in done.err
    assert not any(b"nd_secret_token" in (data or b"") for data in snapshot(user).values())


def test_an_address_that_was_named_is_passed_on(nodrop: Run, project: Path) -> None:
    nodrop("setup", "cursor", "--url", "https://relay.example")
    server = json.loads((project / ".cursor/mcp.json").read_text())["mcpServers"]["nodrop"]
    assert server["args"][-2:] == ["--url", "https://relay.example"]


def test_the_hook_rings_when_something_waits_and_never_fails(
    nodrop: Run, user: Path, project: Path
) -> None:
    nodrop("setup", "claude", "--agent", "rung")
    hooks = json.loads((project / ".claude/settings.json").read_text())["hooks"]
    command = hooks["UserPromptSubmit"][0]["hooks"][0]["command"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(user)}

    def rung(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", line],
            env=environment, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    silent = rung(command)
    assert (silent.returncode, silent.stdout, silent.stderr) == (0, "", "")
    absent = rung(command.replace("/nodrop ", "/no-such-nodrop "))
    assert (absent.returncode, absent.stdout, absent.stderr) == (0, "", "")


def test_names_are_stable_and_valid() -> None:
    assert folder_name("claude", Path("/a/My Project!")) == "claude-My-Project"
    assert folder_name("claude", Path("/a/My Project!")) == folder_name(
        "claude", Path("/a/My Project!")
    )
    assert folder_name("codex", Path("/")) == "codex-root"
    assert len(folder_name("codex", Path("/" + "x" * 300))) == 64
    foreign = [folder_name("codex", Path(f"/a/{name}")) for name in ("日本", "한국")]
    assert len(set(foreign)) == 2
    assert all(name.isascii() and name.startswith("codex-") for name in foreign)


# --- the edits themselves ------------------------------------------------------------------------


def edits() -> Iterator[tuple[Any, str]]:
    entry = Entry(keys=("a", "b"), value=1)
    element = Entry(keys=("hooks", "Stop"), value={"run": "us inbox"}, known_by="us inbox")
    yield JsonFile(path=ABSENT, entries=(entry,)), '{\n\t"k": [\n\t\t1\n\t]\n}'
    yield JsonFile(path=ABSENT, entries=(entry, element)), '{\n  "a": {\n    "c": 2\n  }\n}\n'
    frame = Entry(keys=("version",), value=1, frame=True)
    yield JsonFile(path=ABSENT, entries=(frame, element)), '{\n  "version": 2,\n  "k": 1\n}'
    yield JsonFile(path=ABSENT, entries=(element,)), json.dumps({"hooks": {"Stop": [1]}}, indent=1)
    yield Block(path=ABSENT, content="x", begin="<b>", end="<e>"), "one\n\ntwo\n"
    yield OwnFile(path=ABSENT, content="x"), "x"


@pytest.mark.parametrize(("edit", "text"), list(edits()))
def test_adding_twice_is_adding_once_and_can_be_undone(edit: Any, text: str) -> None:
    added = edit.added(text)
    assert edit.added(added) == added
    assert edit.removed(added) == (None if isinstance(edit, OwnFile) else text)


# --- what was configured is started once ---------------------------------------------------------


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("client", ["claude", "codex"])
def test_what_was_configured_is_started_once(nodrop: Run, project: Path, client: str) -> None:
    assert project.is_dir()
    done = nodrop("setup", client)
    assert done.code == 0
    assert "started it once: it answers" in done.err


@pytest.mark.usefixtures("for_real")
def test_a_server_that_does_not_start_is_said_not_to(
    nodrop: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an environment without the extra: its modules cannot be imported."""
    (tmp_path / "mcp_types.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'mcp_types'\")"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = nodrop("setup", "claude")
    assert done.code == 1
    assert (project / ".mcp.json").exists()
    assert "it is written, and does not start:" in done.err
    assert "No module named 'mcp_types'" in done.err
    assert f"{sys.executable} -m pip install 'nodrop[relay]'" in done.err
    told = nodrop("setup", "claude", "--json")
    assert (told.code, told.json["starts"]) == (1, False)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ([str(ABSENT)], "No such file or directory"),
        ([sys.executable, "-c", "print('hello')"], "it answered"),
        ([sys.executable, "-c", "pass"], "it ended in silence"),
        ([sys.executable, "-c", "input(); input()"], "it did not answer within"),
    ],
)
async def test_what_is_no_mcp_server_is_told_from_one(command: list[str], why: str) -> None:
    assert why in (await start.why_not(command, seconds_max=5) or "")


# --- nodrop doctor starts it again ---------------------------------------------------------------


@pytest.fixture
def alone(nodrop: Run, user: Path) -> Run:
    """Run a command with a home in which nothing was set up yet."""
    return partial(nodrop, NODROP_HOME=str(user / "nodrop"))


def checked(ran: Any) -> list[tuple[str, str, str | None]]:
    checks = [check for check in ran.json["checks"] if check["name"] == "setup"]
    return [(check["status"], check["detail"], check.get("next")) for check in checks]


@pytest.mark.usefixtures("for_real", "project")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_doctor_starts_what_was_configured(alone: Run, client: str) -> None:
    alone("setup", client)
    [(status, detail, advice)] = checked(alone("doctor", "--json"))
    assert (status, advice) == ("ok", None)
    assert detail.endswith("its MCP server starts and answers")
    alone("setup", client, "--remove")
    assert checked(alone("doctor", "--json")) == []


@pytest.mark.usefixtures("for_real")
def test_a_doctor_tells_what_no_longer_starts(alone: Run, project: Path) -> None:
    alone("setup", "claude")
    path = project / ".mcp.json"
    servers = json.loads(path.read_text(encoding="utf-8"))
    servers["mcpServers"]["nodrop"]["command"] = str(ABSENT)
    path.write_text(json.dumps(servers), encoding="utf-8")
    [(status, detail, advice)] = checked(alone("doctor", "--json"))
    assert (status, detail) == ("fail", f"{path}: {ABSENT}: No such file or directory")
    assert advice is not None
    assert advice.startswith(f"See it fail: {ABSENT} mcp --agent ")


def test_a_doctor_tells_of_a_configuration_that_nobody_can_read(alone: Run, project: Path) -> None:
    alone("setup", "claude")
    path = project / ".mcp.json"
    path.write_text('{"mcpServers": ', encoding="utf-8")
    [(status, detail, _)] = checked(alone("doctor", "--json"))
    assert (status, detail.startswith(f"{path}: ")) == ("fail", True)
    path.unlink()
    assert checked(alone("doctor", "--json")) == []
