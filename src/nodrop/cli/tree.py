"""Every verb there is, grouped by purpose: the order of the help."""

from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer

from nodrop.cli import (
    analyzing,
    backup,
    doctor,
    finding,
    looking,
    mcp,
    migrate,
    prove,
    relay,
    reporting,
    stop,
    tracing,
    verify,
)
from nodrop.cli.demo.story import demo
from nodrop.cli.handoffs import deadletters, receiving, requesting, talking, work
from nodrop.cli.setup.connect import setup
from nodrop.cli.team import identity, keys, notifying, publishing, reach, triggers
from nodrop.cli.top.command import top
from nodrop.cli.verb import ALONE, AS_NAMED, AT_HOME, CONNECTION, WITHOUT_TOKEN, verb

_START: Final = "Start here"
_PROOF: Final = "See it hold"
_PANELS: Final[dict[str, tuple[Callable[..., Any], ...]]] = {
    _START: (identity.token, identity.invite, identity.join, identity.policy, doctor.doctor),
    "Hand work off": (
        requesting.send,
        requesting.wait,
        requesting.answer,
        requesting.agree,
        requesting.decline,
        requesting.cancel,
        requesting.reassign,
        requesting.settle,
        requesting.erase,
    ),
    "Do the work": (
        receiving.inbox,
        receiving.dismiss,
        receiving.take,
        receiving.ack,
        receiving.update,
        receiving.ask,
        receiving.counter,
        receiving.done,
        receiving.fail,
        receiving.reject,
        receiving.release,
    ),
    "Talk": (
        talking.say,
        talking.status,
        talking.messages,
        talking.subscribe,
        triggers.emit,
    ),
    "See what happens": (
        top,
        looking.track,
        tracing.trace,
        looking.log,
        looking.note,
        finding.find,
        reporting.debrief,
        reporting.export,
        analyzing.analyze,
    ),
}
_DEAD_LETTERS: Final[dict[str, Callable[..., Any]]] = {
    "list": deadletters.dlq_list,
    "show": deadletters.dlq_show,
    "redrive": deadletters.dlq_redrive,
    "discard": deadletters.dlq_discard,
    "accept": deadletters.dlq_accept,
}
_AGENTS: Final[dict[str, Callable[..., Any]]] = {
    "publish": publishing.agents_publish,
    "add": reach.agents_add,
    "drop": reach.agents_drop,
    "remove": reach.agents_remove,
    "open": reach.agents_open,
    "close": reach.agents_close,
}
_KEYS: Final[dict[str, Callable[..., Any]]] = {
    "list": keys.keys_list,
    "rotate": keys.keys_rotate,
    "revoke": keys.keys_revoke,
}


_TRIGGERS: Final[dict[str, Callable[..., Any]]] = {
    "list": triggers.triggers_list,
    "set": triggers.triggers_set,
    "remove": triggers.triggers_remove,
    "test": triggers.triggers_test,
}


_NOTIFY: Final[dict[str, Callable[..., Any]]] = {
    "add": notifying.notify_add,
    "list": notifying.notify_list,
    "remove": notifying.notify_remove,
}


def _tree() -> typer.Typer:
    """Return every verb, grouped by purpose."""
    tree = typer.Typer(
        name="nodrop",
        add_completion=False,
        pretty_exceptions_enable=False,  # a traceback is for us, and says where without a frame
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="markdown",
    )
    tree.callback(invoke_without_command=True)(_root)
    tree.command("up", rich_help_panel=_START)(verb(relay.up, options=AT_HOME, runner=_fast))
    tree.command("stop", rich_help_panel=_START)(verb(stop.stop, options=AT_HOME))
    tree.command("migrate", rich_help_panel=_START)(verb(migrate.migrate, options=AT_HOME))
    tree.command("backup", rich_help_panel=_START)(verb(backup.backup))
    tree.command("restore", rich_help_panel=_START)(verb(backup.restore, options=AT_HOME))
    tree.command("work", rich_help_panel=_START)(verb(work.work, options=AS_NAMED))
    tree.command("demo", rich_help_panel=_START)(verb(demo, options=ALONE))
    tree.command("setup", rich_help_panel=_START)(verb(setup))
    tree.command("mcp", rich_help_panel=_START)(verb(mcp.mcp))
    tree.command("open", rich_help_panel=_START)(verb(identity.open_))
    for panel, functions in _PANELS.items():
        for function in functions:
            tree.command(function.__name__, rich_help_panel=panel)(verb(function))
    tree.command("verify", rich_help_panel=_PROOF)(verb(verify.verify))
    tree.add_typer(prove.app, name=prove.NAME, rich_help_panel=_PROOF)
    letters = typer.Typer(no_args_is_help=True, help="Dead letters: decide what becomes of them.")
    for name, function in _DEAD_LETTERS.items():
        letters.command(name)(verb(function))
    tree.add_typer(letters, name="dlq", rich_help_panel="See what happens")
    agents = typer.Typer(invoke_without_command=True)
    agents.callback()(verb(finding.agents))
    for name, function in _AGENTS.items():
        # `--token` is the agent's there, and not the caller's.
        options = WITHOUT_TOKEN if name == "add" else CONNECTION
        agents.command(name)(verb(function, options=options))
    tree.add_typer(agents, name="agents", rich_help_panel="See what happens")
    ring = typer.Typer(no_args_is_help=True, help="Keys: list them, replace one, revoke one.")
    for name, function in _KEYS.items():
        command = keys.KeyIdCommand if name == "revoke" else None
        ring.command(name, cls=command)(verb(function))
    tree.add_typer(ring, name="keys", rich_help_panel=_START)
    rules = typer.Typer(no_args_is_help=True, help="Triggers: rules that hand off by themselves.")
    for name, function in _TRIGGERS.items():
        rules.command(name)(verb(function))
    tree.add_typer(rules, name="triggers", rich_help_panel="Talk")
    outlets = typer.Typer(no_args_is_help=True, help="Have what waits for you come to you.")
    for name, function in _NOTIFY.items():
        outlets.command(name)(verb(function))
    tree.add_typer(outlets, name="notify", rich_help_panel="Talk")
    return tree


def _fast(main: Coroutine[Any, Any, None]) -> None:
    """Run a relay on the event loop that suits it best."""
    from nodrop import app  # noqa: PLC0415  # the relay itself: other verbs need not load it

    app.run(main)


def _root(
    context: typer.Context,
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Hand work from one agent to another without dropping it."""
    if show_version:
        print(f"nodrop {version('nodrop')}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


app: Final = _tree()
