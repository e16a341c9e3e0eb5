"""`python -m nodrop.proof.fuzz`: asks, prints what came of it, and exits with 1 if anything did."""

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from nodrop.client.credentials import CredentialsFile
from nodrop.client.tokens import OPERATOR
from nodrop.core.errors import NodropError
from nodrop.proof.chaos.relay_process import RelayProcess

_EXIT_FOUND: Final = 1
_EXIT_COULD_NOT: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out what the arguments ask for; return the exit code."""
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the relay must not outlive us
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        # Fuzzers leave files where they run.
        try:
            ok, told = _http(asked) if asked.what == "http" else _decoders(asked)
        except (NodropError, ImportError) as error:
            sys.stderr.write(f"{error}\n")
            return _EXIT_COULD_NOT
    text = msgspec.json.encode(told)
    if not asked.json:
        text = msgspec.json.format(text, indent=2)
    sys.stdout.write(text.decode() + "\n")
    return 0 if ok else _EXIT_FOUND


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nodrop.proof.fuzz", description=__doc__)
    parts = parser.add_subparsers(dest="what", required=True)
    http = parts.add_parser("http", help="requests made from the OpenAPI document")
    http.add_argument("--requests", type=int, default=10_000)
    http.add_argument("--only", help="one operation, by its name")
    http.add_argument("--url", help="of a relay that runs; one is started otherwise")
    http.add_argument("--token", help="of the agent to ask as, with --url")
    http.add_argument("--agent", default=OPERATOR, help="whose token it is, with --url")
    decoders = parts.add_parser("decoders", help="bytes for what reads them first")
    decoders.add_argument("--runs", type=int, default=1_000_000)
    decoders.add_argument("--plain", action="store_true", help="random changes only, no atheris")
    for part in (http, decoders):
        part.add_argument("--seed", type=int, default=7)
        part.add_argument("--json", action="store_true", help="on one line")
    return parser


def _http(asked: argparse.Namespace) -> tuple[bool, object]:
    from nodrop.proof.fuzz import http  # noqa: PLC0415  # needs schemathesis

    def run(url: str, token: str, agent: str) -> http.Report:
        return http.run(
            url,
            token=token,
            agent=agent,
            requests=asked.requests,
            seed=asked.seed,
            only=asked.only,
            progress=_progress,
        )

    home = Path("home").absolute()

    async def run_one() -> http.Report:
        async with RelayProcess(home) as relay:
            token = CredentialsFile(relay.home).read().operator
            assert token is not None, "a relay that serves has told its operator"
            return await asyncio.to_thread(run, relay.url, token, OPERATOR)

    report = run(asked.url, asked.token or "", asked.agent) if asked.url else asyncio.run(run_one())
    return report.ok, report


def _decoders(asked: argparse.Namespace) -> tuple[bool, object]:
    from nodrop.proof.fuzz import guided, mutated  # noqa: PLC0415  # for this part only

    run = mutated.run if asked.plain else guided.run
    report = run(runs=asked.runs, seed=asked.seed, progress=_progress)
    return report.ok, report


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done:,} of {of:,}")


if __name__ == "__main__":
    sys.exit(main())
