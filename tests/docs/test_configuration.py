"""The configuration reference has every key and every variable that the package looks at."""

import ast
import re
from pathlib import Path

from nodrop.client.settings import File, load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
OF_THE_DEMO_ALONE = {"NODROP_DEMO_TICKETS"}
CLIENTS = {"url": "http://h:1", "agent": "a", "team": "t", "token": "nd_1", "home": "h", "ca": "c"}
"""Settings of a client, with a value for each."""


def variables() -> set[str]:
    """Every variable of ours that the package names."""
    named: set[str] = set()
    for module in (ROOT / "src" / "nodrop").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= {node.value} if re.fullmatch(r"NODROP_[A-Z_]+[A-Z]", node.value) else set()
            if isinstance(node, ast.keyword) and str(node.arg).startswith("NODROP_"):
                named.add(str(node.arg))
    return named


def test_every_variable_is_on_the_page() -> None:
    named = variables()
    assert {"NODROP_STORE", "NODROP_ATTEMPT", "NODROP_TEAM"} <= named, "the search finds some"
    assert [name for name in named - OF_THE_DEMO_ALONE if f"`{name}`" not in PAGE] == []


def test_every_key_of_the_file_is_on_the_page() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert set(File.__struct_fields__) <= set(rows)


def test_every_key_of_a_client_has_its_variable_and_the_variable_counts_first(
    tmp_path: Path,
) -> None:
    written = {name: f"{value}-file" for name, value in CLIENTS.items()}
    lines = [f'{name} = "{value}"' for name, value in written.items()]
    (tmp_path / "nodrop.toml").write_text("\n".join(lines))
    said = {f"NODROP_{name.upper()}": value for name, value in CLIENTS.items()}
    for environment, expected in (({}, written), (said, CLIENTS)):
        found = load(environment=environment, directory=tmp_path)
        assert (found.address, found.agent, found.team) == tuple(
            expected[name] for name in ("url", "agent", "team")
        )
        assert (found.token, found.home, found.ca) == (
            expected["token"],
            Path(expected["home"]),
            Path(expected["ca"]),
        )
        for name in expected:
            assert f"| `{name}` | `NODROP_{name.upper()}` | `--{name}` |" in PAGE
