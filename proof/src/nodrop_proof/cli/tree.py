"""Every verb of `nodrop prove`, in the order of the help. The command line finds it as an entry point."""

import logging
from typing import Final

import typer

from nodrop.cli.verb import ALONE, verb
from nodrop_proof.cli import (
    adversary,
    backup,
    bench,
    chaos,
    emergence,
    fuzz,
    simulate,
    soak,
    storm,
    sync_order,
    tampering,
)


def _tree() -> typer.Typer:
    # A proof makes leases lapse, disks fail and connections end by the thousand: its report tells what
    # came of them.
    logging.getLogger("nodrop").addHandler(logging.NullHandler())
    tree = typer.Typer()
    tree.command("chaos")(verb(chaos.chaos, options=ALONE))
    tree.command("simulate")(
        verb(simulate.simulate, options=ALONE, runner=simulate.in_virtual_time)
    )
    tree.command("bench")(verb(bench.bench, options=ALONE))
    inputs = typer.Typer(
        no_args_is_help=True, help="Bad input in bulk; exit 1 if any was mishandled."
    )
    inputs.command("http")(fuzz.http)
    inputs.command("decoders")(fuzz.decoders)
    tree.add_typer(inputs, name="fuzz")
    held = typer.Typer(
        no_args_is_help=True, help="The analysis of logs, held to labels and to public data."
    )
    for function in (
        *(emergence.evaluate, emergence.same, emergence.real, emergence.write),
        emergence.speed,
    ):
        held.command(function.__name__)(function)
    tree.add_typer(held, name="emergence")
    tree.command("sync-order")(sync_order.sync_order)
    tree.command("backup")(backup.backup)
    tree.command("adversary")(adversary.adversary)
    tree.command("soak")(soak.soak)
    tree.command("storm")(storm.storm)
    tree.command("tampering")(tampering.tampering)
    return tree


app: Final = _tree()
