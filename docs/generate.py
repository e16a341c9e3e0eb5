"""Writes the pages that follow from the code: `make docs`. With --check, says which are stale."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from nodrop import app
from nodrop.cli.handoffs.execution import GIVEN
from nodrop.cli.tree import app as cli
from nodrop.client.settings import Checkpoints, File, variable
from nodrop.model import events
from nodrop.model.errors import ALL
from nodrop.model.handoff import FINAL
from nodrop.model.limits import DEFAULT, HOUR, Limits
from nodrop.model.machine import TRANSITIONS
from nodrop.model.policy import STEPS
from nodrop.model.roles import Role
from nodrop.protocol.errors import TABLE
from nodrop.protocol.events import NAMES, TEAM_NAMES
from nodrop.protocol.text import spell_duration
from nodrop.relay.identity.roles import MAY, viewed

ROOT = Path(__file__).parents[1]
MADE_BY = "<!-- Made by `make docs` from the code. Do not edit. -->\n\n"


def states() -> str:
    """The state diagram, and everything that may happen in each state."""
    lines = ["stateDiagram-v2", "    [*] --> offered: Offered"]
    for state, moves in TRANSITIONS.items():
        ways: dict[str, list[str]] = {}
        for event, to in moves.items():
            if to is not state:
                ways.setdefault(to.value, []).append(event.__name__)
        lines += [f"    {state.value} --> {to}: {', '.join(names)}" for to, names in ways.items()]
    lines += [f"    {state.value} --> [*]: Settled" for state in sorted(FINAL)]
    diagram = "\n".join(lines)
    rows = [
        f"| `{state.value}` | {_names(moves, stay=False)} | {_names(moves, stay=True)} |"
        for state, moves in TRANSITIONS.items()
    ]
    return (
        f"# States\n\n{MADE_BY}"
        "Every move a handoff can make. A pair that is not here cannot happen; the table is\n"
        "`TRANSITIONS` in `src/nodrop/model/machine.py`.\n\n"
        f"```mermaid\n{diagram}\n```\n\n"
        "| state | leaves by | may happen without leaving |\n|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n## The team's default steps\n\n"
        "An offer without an escalation step of a kind gets the team's step of that kind: an `Escalated` in the\n"
        "table above, which changes no state. A team that sets none has these\n"
        "([ADR 29](adr/0029-the-teams-steps-are-recorded-with-the-offer.md)):\n\n"
        "| a handoff that is | is reported to | after |\n|---|---|---|\n"
        + "\n".join(
            f"| `{step.when.value}` | `{step.notify}` "
            f"| {spell_duration(step.after_ms) if step.after_ms else 'at once'} |"
            for step in STEPS
        )
        + '\n\n`nodrop policy --escalate dead:0s:me` sets the team\'s steps. `"escalation": []` in an offer opts out of\n'
        "all of them: [coordination](coordination.md).\n"
    )


def _names(moves: object, *, stay: bool) -> str:
    assert isinstance(moves, dict)
    state = next(s for s, m in TRANSITIONS.items() if m is moves)
    names = [e.__name__ for e, to in TRANSITIONS[state].items() if (to is state) is stay]
    return ", ".join(sorted(names)) or "nothing"


def log_entries() -> str:
    """Every kind of log entry."""
    rows = [f"| `{name}` | {_first_line(kind.__doc__)} |" for kind, name in NAMES.items()]
    team = [f"| `{name}` |" for name in TEAM_NAMES]
    assert set(NAMES) == set(events.Event.__args__), "every event has a name"
    return (
        f"# Log entries\n\n{MADE_BY}"
        "What is written to a team's log, by name. A released name never changes its meaning.\n\n"
        "| entry | what happened |\n|---|---|\n" + "\n".join(rows) + "\n\n"
        "About the team, or about a handoff that it does not change:\n\n| entry |\n|---|\n"
        + "\n".join(team)
        + "\n"
    )


def errors() -> str:
    """Every error code, and how it shows at each door."""
    rows = [
        f"| `{e.code}` | {TABLE[e].http} | {TABLE[e].jsonrpc} | {TABLE[e].a2a} | {TABLE[e].exit} "
        f"| {'yes' if e.retryable else 'no'} "
        f"| {e.title}. {e.next} |"
        for e in ALL
    ]
    return (
        f"# Errors\n\n{MADE_BY}"
        "`code` is part of the API and never changes; the sentence may. Over WebSocket the same\n"
        "problem document comes as `error`. Retryable ones may be repeated as they are, with the\n"
        "same `command_id`.\n\n"
        "| code | HTTP | JSON-RPC | A2A | exit | retryable | what it means, what to do |\n"
        "|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def limits() -> str:
    """Every bound, as `model/limits.py` names it."""
    rows = [
        f"| `{name}` | {_spelled(name, getattr(DEFAULT, name))} | {said} |"
        for name, said in _fields(Limits)
    ]
    return (
        f"# Limits\n\n{MADE_BY}"
        "Every size, wait, batch, queue and rate is bounded, and every bound has a name, with its unit\n"
        "last, in `src/nodrop/model/limits.py`. A relay takes them as one value (`Limits`). What is over\n"
        "a bound is refused with a code and never cut short or dropped:\n\n"
        "- `too_large`, `invalid_request`: a size, a count or a length of the request itself.\n"
        "- `loop_detected`: a chain, or a line along `parent_id`, that is too long (`legs_max`) or visits\n"
        "  one agent too often (`visits_per_agent_max`). A redrive is no further visit.\n"
        "- `queue_full`: a requester, an inbox or the relay has too much waiting. Retryable; `Retry-After`\n"
        "  and `retry_after` say when. A next leg that meets a full inbox is born `rejected`; whoever\n"
        "  is found by capability has room, if anybody has.\n"
        "- `rate_limited`: an agent asks too fast. Retryable; `Retry-After` is exact.\n"
        "- `limit_reached`: a bound of one handoff is used up.\n\n"
        "A retry is not refused but waits. Every first attempt earns its requester a tenth of a retry\n"
        "(`retry_percent`); who has none left draws on its team's allowance (`retries_per_second`); when\n"
        "that is used up too, lapsed leases, retryable failures and redrives wait their turn, behind their\n"
        "backoff, until the deadline. `nodrop prove storm` shows what that is for.\n\n"
        "| bound | default | what it bounds |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _fields(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a struct, each with the text below it."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for statement, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        said = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            said = " ".join(str(after.value.value).split())
        yield statement.target.id, said


def _spelled(name: str, value: float) -> str:
    if name.endswith("_ms") or "_ms_" in name:
        return f"{int(value):,} ({spell_duration(int(value))})"
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def authorization() -> str:
    """Who may ask for what."""
    head = " | ".join(role.value for role in Role)
    rows = [
        f"| `{name}` | "
        + " | ".join("yes" if role in may else "" for role in Role)
        + f" | {_viewed(name)} |"
        for name, may in MAY.items()
    ]
    meanings = [f"- **{role.value}**: {_comment(Role, role.name)}" for role in Role]
    return (
        f"# Who may do what\n\n{MADE_BY}"
        "A request passes four questions, in this order; what fails one of them is refused, changes\n"
        "nothing and is in the security log.\n\n"
        "1. **Who are you?** A token names a team, an agent and a role (`unauthenticated`). A path that\n"
        "   names another team than the token's leads nowhere (`not_found`).\n"
        "2. **What may your role ask for?** The table below (`forbidden`).\n"
        "3. **May you see it?** Parties, observers and operators see a handoff; unknown and foreign ids\n"
        "   give the same answer (`not_found`). Words and data are for parties and operators only.\n"
        "4. **Is it yours to do?** Only the recipient says what the recipient did; cancelling, reassigning,\n"
        "   settling, erasing and deciding about a dead letter is for the requester and operators\n"
        "   (`forbidden`). Whom a sender may hand what to is a matter of the team's allow rules: without\n"
        "   any, everybody; with some, nobody may do more than one of them covers, operators included.\n"
        "   They are asked for offers and every leg of them, reassigning, redriving and when a leg opens;\n"
        "   who may not be asked is no candidate (`no_match`).\n\n"
        "## Roles\n\n" + "\n".join(meanings) + "\n\n"
        f"| operation | {head} | view link |\n|---|"
        + "---|" * (len(Role) + 1)
        + "\n"
        + "\n".join(rows)
        + "\n\n"
        "## Links\n\n"
        "A link signs a browser in: `<address of the relay>/#signin=CODE`. The code is behind the `#`, so it\n"
        "is in no request line and no log of a proxy. `POST /v1/links/redeem` (operation `redeem_link`,\n"
        "without a bearer) exchanges it for a bearer token. A code that is unknown, used, expired or revoked\n"
        "gets `link_invalid`, whichever it is; the security log notes it, and one address may try\n"
        f"{DEFAULT.sign_ins_per_second_max:g} codes a second (`rate_limited`).\n\n"
        "- **sign_in** (`nodrop open`, and printed by `nodrop up`): for the caller that makes it, with the same agent\n"
        "  and role. It is good once, within 15 minutes unless `expires_in` says otherwise. Its bearer counts\n"
        f"  for {DEFAULT.sign_in_ms // HOUR} hours; a new link extends that. Every role may make one, for itself.\n"
        "- **view** (`nodrop open --view`): an observer called `viewer`, as often as wanted until the link\n"
        "  expires, 24 hours unless `expires_in` says otherwise. Its answers leave out payloads, results,\n"
        "  questions, notes, messages and every other body, in views, the log, traces and live streams. It\n"
        "  may ask for what the last column says; everything else is `forbidden`, its own tokens and keys\n"
        "  included. Operators and observers may make one. With `payloads` (`--payloads`) it shows bodies,\n"
        "  to everyone who has the link: only an operator may make that, as the person `me` is.\n\n"
        "Codes and bearers are kept as hashes. A link is made, redeemed and revoked by entries of the log;\n"
        "redeeming a view link writes nothing. `nodrop token --list` lists links beside tokens, and\n"
        "`nodrop token --revoke ID` ends a link and its bearer at once, on open connections too.\n\n"
        "## The security log\n\n"
        "Refusals that are about who asks are counted beside the team's log, which nobody who is refused\n"
        "can make grow: by team, agent, operation, code, reason and address, with the first and last time.\n"
        "`nodrop log --security` (operation `refusals`) shows them to operators, and `security.log` in\n"
        "`NODROP_HOME` keeps a line for the first, second, fourth, eighth … of a kind, in four files of a\n"
        "mebibyte at most. No secrets and no payloads are in it.\n\n"
        "## Erasing\n\n"
        "`nodrop erase REF` (operation `erase`) removes the words and data of one settled handoff from the\n"
        "store and its write-ahead log. The entries stay, and so does the chain; the salts of the\n"
        "digests in them are erased too, so that no guess can be tried against them. That it was\n"
        "erased is an entry of its own. What later legs of a chain were given\n"
        "is theirs: erase each of them. A dead letter is decided about first, and what a redriven one left\n"
        "is kept until its successor is settled.\n"
    )


def _viewed(operation: str) -> str:
    """Whether the bearer of a view link may ask for an operation."""
    if operation in viewed(payloads=False):
        return "yes"
    return "with payloads" if operation in viewed(payloads=True) else ""


def _comment(kind: type, name: str) -> str:
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for statement, after in pairwise(tree.body):
        named = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name
        if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return " ".join(str(after.value.value).split())
    raise LookupError(name)


def configuration() -> str:
    """Every key of `nodrop.toml`, and every variable."""
    options = _options("up")
    flags = {f"--{name}" for name in File.__struct_fields__}
    common = _options("inbox").keys() & flags
    keys = [
        f"| `{name}` | {_variable(name, common, options)} | {_flag(name, common, options)} "
        f"| {_linked(said)} |"
        for name, said in _fields(File)
    ]
    table = [f"| `{name}` | {said} |" for name, said in _fields(Checkpoints)]
    up = [
        f"| `{flag}` | {f'`{envvar}`' if envvar else ''} | {said} |"
        for flag, (envvar, said) in options.items()
    ]
    given = [f"| `{name}` | {said} |" for name, said in GIVEN.items()]
    return (
        f"# Configuration\n\n{MADE_BY}"
        "Everything has a default, and a relay on one machine needs no configuration. What is said in several\n"
        "places counts in this order: the flag (or argument of the SDK), the environment variable, `nodrop.toml` in\n"
        "the directory where the command is run, and then what `nodrop up` or `nodrop join` left in the home.\n\n"
        "## `nodrop.toml`\n\n"
        '```toml\nurl = "https://relay.example"\nagent = "code_agent"\nca = "our-ca.pem"\n```\n\n'
        "An unknown key is refused. Keys, with what says the same:\n\n"
        "| key | variable | flag | what it is |\n|---|---|---|---|\n" + "\n".join(keys) + "\n\n"
        "The table `[checkpoints]` has:\n\n| key | what it is |\n|---|---|\n"
        + "\n".join(table)
        + "\n\n## Where things are\n\n"
        "The home is `--home`, `NODROP_HOME`, `home` in `nodrop.toml`, or the user's data directory\n"
        "(`~/.local/share/nodrop` on Linux, `~/Library/Application Support/nodrop` on macOS). In it: `nodrop.db` and its\n"
        "`-wal`, `credentials`, `keys/`, `backups/`, `running/` and `security.log`, all for their owner alone.\n\n"
        "## `nodrop up`\n\n"
        "| option | variable | what it does |\n|---|---|---|\n" + "\n".join(up) + "\n\n"
        "`--limit NAME=VALUE` takes every name of [limits](limits.md). A collector for traces and metrics is named by the\n"
        "standard variables of OpenTelemetry, `OTEL_EXPORTER_OTLP_ENDPOINT` first ([observability](observability.md)).\n\n"
        "## What a command of `nodrop work` is given\n\n"
        "| variable | what it is |\n|---|---|\n" + "\n".join(given) + "\n\n"
        "And `NODROP_TOKEN`, `NODROP_TEAM` and `NODROP_CA` where the worker has them.\n"
    )


def _options(command: str) -> dict[str, tuple[str | None, str]]:
    """The options of a command, each with its variable and its help."""
    root: Any = typer.main.get_command(cli)
    options = [p for p in root.commands[command].params if p.param_type_name == "option"]
    return {
        "`, `".join((max(option.opts, key=len), *option.secondary_opts)): (
            option.envvar,
            option.help or "",
        )
        for option in options
        if option.name != "help"
    }


def _variable(
    name: str, common: AbstractSet[str], options: Mapping[str, tuple[str | None, str]]
) -> str:
    if f"--{name}" in common:
        return f"`{variable(name)}`"
    envvar = options.get(f"--{name}", (None, ""))[0]
    return f"`{envvar}`" if envvar else ""


def _flag(
    name: str, common: AbstractSet[str], options: Mapping[str, tuple[str | None, str]]
) -> str:
    if f"--{name}" in common:
        return f"`--{name}`"
    return f"`nodrop up --{name}`" if f"--{name}" in options else ""


def _linked(said: str) -> str:
    """Return a sentence with the pages in it as links."""
    return re.sub(r"\(docs/(\w+)\.md\)", r"([\1](\1.md))", said)


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().splitlines()[0]


def files() -> dict[Path, bytes]:
    """Everything that is made from the code, by where it belongs."""
    pages = {
        "states.md": states,
        "log-entries.md": log_entries,
        "errors.md": errors,
        "limits.md": limits,
        "authorization.md": authorization,
        "configuration.md": configuration,
    }
    made = {ROOT / "docs" / name: make().encode() for name, make in pages.items()}
    return made | {ROOT / "schema" / name: data for name, data in app.schemas().items()}


def main() -> int:
    """Write the files, or say which are stale."""
    made = files()
    stale = [p for p, data in made.items() if not p.exists() or p.read_bytes() != data]
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale) or "nothing"
    if "--check" in sys.argv:
        print(f"stale: {names}")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(made[path])
    print(f"wrote: {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
