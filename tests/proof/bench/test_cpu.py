"""The account of processor time covers a process and all that it started."""

import os
import subprocess
import sys

from nodrop_proof.bench.cpu import used_seconds

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
child = subprocess.Popen([sys.executable, "-c", sys.argv[1] + "input()"], stdin=subprocess.PIPE)
print("burnt", flush=True)
input()
child.communicate(b"end")
"""


def test_time_of_children_counts_while_they_live_and_when_they_are_gone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, BURN.format(seconds=0.1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"burnt\n"
        reaped = used_seconds([parent.pid])
        parent.communicate(b"end\n")
    assert reaped >= 0.08  # the child that ended; the other one may not have begun


def test_a_process_that_is_a_child_of_another_counts_once() -> None:
    apart = used_seconds([os.getpid()])
    both = used_seconds([os.getpid(), os.getppid()])  # later: what is used only grows
    assert apart <= both
    assert used_seconds([os.getpid(), os.getpid()]) < 2 * apart + 0.05


def test_a_process_that_is_not_there_has_used_nothing() -> None:
    assert used_seconds([2**22 + 1]) == 0.0
