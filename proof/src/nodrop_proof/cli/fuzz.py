"""`nodrop prove fuzz`: asks, prints what came of it, and exits with 1 if anything did."""

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import msgspec
import typer

from nodrop.client.auth.credentials import CredentialsFile
from nodrop.client.auth.tokens import OPERATOR
from nodrop.model.errors import NodropError

if TYPE_CHECKING:
    from nodrop_proof.fuzz import http as fuzzing

_EXIT_FOUND: Final = 1
_EXIT_COULD_NOT: Final = 2

Seed = Annotated[int, typer.Option(min=0, help="Decides what is random.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, on one line.")]


class _Report(Protocol):
    """What both kinds of input end with."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        ...


def http(
    *,
    requests: Annotated[int, typer.Option(min=1, help="How many.")] = 10_000,
    only: Annotated[str | None, typer.Option(help="One operation, by its name.")] = None,
    url: Annotated[
        str | None, typer.Option(help="Of a relay that runs; one is started otherwise.")
    ] = None,
    token: Annotated[str, typer.Option(help="Of the agent to ask as, with --url.")] = "",
    agent: Annotated[str, typer.Option(help="Whose token it is, with --url.")] = OPERATOR,
    seed: Seed = 7,
    as_json: Json = False,
) -> None:
    """Send requests made from the OpenAPI document: right, wrong and in sequence."""

    def ask() -> "fuzzing.Report":
        from nodrop_proof.chaos.relay_process import RelayProcess  # noqa: PLC0415  # for this verb only
        from nodrop_proof.fuzz import http as fuzzing  # noqa: PLC0415  # needs schemathesis

        def run(url: str, token: str, agent: str) -> fuzzing.Report:
            return fuzzing.run(
                url,
                token=token,
                agent=agent,
                requests=requests,
                seed=seed,
                only=only,
                progress=_progress,
            )

        home = Path("home").absolute()

        async def run_one() -> fuzzing.Report:
            async with RelayProcess(home) as relay:
                token = CredentialsFile(relay.home).read().operator
                assert token is not None, "a relay that serves has told its operator"
                return await asyncio.to_thread(run, relay.url, token, OPERATOR)

        return run(url, token, agent) if url else asyncio.run(run_one())

    _tell(ask, as_json=as_json)


def decoders(
    *,
    runs: Annotated[int, typer.Option(min=1, help="How many inputs.")] = 1_000_000,
    plain: Annotated[
        bool, typer.Option("--plain", help="Random changes only, no atheris.")
    ] = False,
    seed: Seed = 7,
    as_json: Json = False,
) -> None:
    """Feed bytes to the decoders that read them first."""

    def ask() -> _Report:
        from nodrop_proof.fuzz import guided, mutated  # noqa: PLC0415  # for this verb only

        run = mutated.run if plain else guided.run
        return run(runs=runs, seed=seed, progress=_progress)

    _tell(ask, as_json=as_json)


def _tell(ask: Callable[[], _Report], *, as_json: bool) -> None:
    """Print what came of it; exit as it says."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the relay must not outlive us
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # Fuzzers leave files where they run.
        try:
            report = ask()
        except (NodropError, ImportError) as error:
            sys.stderr.write(f"{error}\n")
            raise typer.Exit(_EXIT_COULD_NOT) from error
    text = msgspec.json.encode(report)
    if not as_json:
        text = msgspec.json.format(text, indent=2)
    print(text.decode())
    if not report.ok:
        raise typer.Exit(_EXIT_FOUND)


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done:,} of {of:,}")
