"""The processor time that processes have used, with all their descendants."""

import os
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Final

_TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")
_PARENT, _USED = 1, slice(11, 15)
"""Fields of /proc/PID/stat after the name: the parent; own and reaped children's user and system."""


def used_seconds(roots: Collection[int]) -> float:
    """Return what the processes `roots` and their descendants have used so far, dead ones too.

    The time of a child that ended is in its parent's account once it was waited for.
    """
    used: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        pid = int(place.name)
        used[pid] = sum(map(int, fields[_USED]))
        children[int(fields[_PARENT])].append(pid)
    wanted, counted = list(roots), set[int]()
    while wanted:
        pid = wanted.pop()
        if pid in used and pid not in counted:
            counted.add(pid)
            wanted += children[pid]
    return sum(used[pid] for pid in counted) * _TICK_SECONDS
