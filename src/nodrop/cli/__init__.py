"""The command line: parse, call the SDK or the app, print. Decides nothing itself.

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict, 75 try again or wait elapsed, 130
interrupted, 141 nobody reads the output; `protocol.errors.TABLE` says which error is which.
"""

from importlib import import_module


def main() -> None:
    """Run the command line."""
    # By its name and only now: the verbs are modules of this package, which must exist first.
    import_module("nodrop.cli.tree").app(prog_name="nodrop")
