"""The page of results, `docs/benchmarks.md`: made from what a run measured, never by hand."""

from collections.abc import Sequence
from typing import Final

from nodrop_proof.bench.figures import Spread
from nodrop_proof.bench.finding import Finding
from nodrop_proof.bench.growth import POSTGRES, Growth
from nodrop_proof.bench.idle import Idle
from nodrop_proof.bench.machine import Machine
from nodrop_proof.bench.report import OURS, Line, Report
from nodrop_proof.bench.system import APART, MANY, ONE, Load

_INTRODUCTION: Final = """\
# Benchmarks

<!-- Made by `nodrop prove bench --write docs`. Do not edit. -->

Every system does the same durable cycle: an offer with an idempotency key, its delivery to a worker,
the acknowledgement, the completion with a result, and the outcome at the requester. Offer,
acknowledgement and completion are on disk before they are answered. The payload has 430 bytes of
JSON, the result 220. Server, worker and requester are separate processes; the worker has 64 handoffs
in hand at once. The requester holds each outcome against what it asked, and a round in which one is
lost, wrong, or still missing 20 s after the window counts as failed, not as fast.

Systems take turns, round after round, in one run: what disturbs one disturbs all. **Ratios within a
round are what counts**; a speed alone says as much about the machine as about the system.
"""

_CAVEATS: Final = """\
## Read before quoting

- Server, worker, requester and database share {cores} cores, so each figure includes what the client
  library costs. Other work may have run on the machine meanwhile: the ranges show how much that
  mattered. On a busy machine a system of many processes gets more than its share, ours less.
- A sync took {sync:.1f} ms at the median before the run. On a disk with quicker syncs systems that
  sync per message gain more than ours, on a slower one less: we sync once per batch.
- One SDK connection carries all callers of *Nodrop, WebSocket*, as one connection does for NATS; HTTP
  clients have a connection per caller. All asyncio clients run on uvloop, ours and theirs.
- Our cycle is Python's time, theirs mostly is not: an interpreter built with profile-guided
  optimisation, as distributions have it, takes about a sixth less of it than one built without.
- The peers use their official Python clients as their documentation shows; nobody who knows them
  better has tuned this. Polling intervals were shortened where they would have decided the result.
- Cycles differ in what they leave behind. Ours validates payload and result against the worker's
  schema, checks a token, chains each event into the log and, over the SDK, settles: a fourth durable
  step. Peers have less of that, or none: see the column *cycle*.
- In-process has no server and no network; nobody else here has such a mode but huey (a file).
"""

_ON_POSTGRESQL: Final = (
    ("nodrop-postgres", "procrastinate"),
    ("nodrop-postgres", "skip-locked"),
    ("nodrop-postgres-http", "procrastinate"),
    ("nodrop-postgres-http", "skip-locked"),
    ("nodrop-postgres-across", "nodrop-postgres"),
    ("nodrop-postgres-apart", "nodrop-postgres"),
)
"""What is compared on one PostgreSQL: with the other users of it, and two nodes with one."""

_AGAIN: Final = """\
## Again

```console
$ make bench                                    # sets the peers up in .venv-bench, then all of this
$ nodrop prove bench --rounds 3 --seconds 3           # the comparison
$ nodrop prove bench --only nodrop-websocket,nats     # some of it
$ nodrop prove bench growth --past 0,100000,1000000   # stores with a past; --store postgres
$ nodrop prove bench idle                             # memory, idle processor time, delivery
$ nodrop prove bench finding                          # a team of ten thousand
```

Each takes `--json`, and `--write docs` renews this page.
"""


def made(
    peers: Report | None,
    growth: Growth | None,
    idle: Idle | None,
    finding: Finding | None,
    *,
    growth_postgres: Growth | None = None,
    chart: str,
) -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    if peers is not None:
        parts += [f"![Durable cycles per second]({chart})\n", _summary(peers)]
        parts += [_table(peers, load) for load in _loads(peers)]
        parts += [_failures(peers), _systems(peers)]
    parts += [_growth(each) for each in (growth, growth_postgres) if each is not None]
    if idle is not None:
        parts.append(_idle(idle))
    if finding is not None:
        parts.append(_finding(finding))
    if peers is not None:
        machine = peers.machine
        parts.append(_CAVEATS.format(cores=machine.cores, sync=machine.sync_p50_ms))
    parts.append(_AGAIN)
    return "\n".join(part for part in parts if part)


# --- against peers ------------------------------------------------------------------------------


def _summary(report: Report) -> str:
    lines = [
        (
            f"Measured on {_machine(report.machine)}, rounds: {report.rounds}, windows of "
            f"{report.window.seconds:g} s after {report.window.warm_up_seconds:g} s of warm-up.\n"
        )
    ]
    for load in (MANY, ONE):
        best = report.best_peer(load)
        if best is None:
            continue
        for way in OURS:
            ratio = best.ours_over_it.get(way)
            if ratio is not None:
                lines.append(
                    f"- {report.about[way].title}, {_callers(load)}: {_spread(ratio, 1)} times "
                    f"{report.about[best.system].title}, the fastest peer"
                )
    lines += _delays(report)
    lines += [
        f"- {report.about[ours].title}, {_callers(MANY)}: {_spread(ratio, 2)} times "
        f"{report.about[other].title}"
        for ours, other in _ON_POSTGRESQL
        if (ratio := report.ratio(ours, other, MANY)) is not None
    ]
    return "\n".join(lines) + "\n"


def _delays(report: Report) -> list[str]:
    """Return how our p99 and our separate connections compare."""
    ours = _line(report, OURS[0], MANY)
    apart = _line(report, OURS[0], APART)
    best = report.best_peer(MANY)
    told: list[str] = []
    if ours and best and ours.p99_ms and best.p99_ms:
        told.append(
            f"- p99 over WebSocket, {_callers(MANY)}: {ours.p99_ms.median:,.1f} ms; of the fastest "
            f"peer {best.p99_ms.median:,.1f} ms"
        )
    if ours and apart and ours.rate and apart.rate:
        told.append(
            f"- 64 separate connections reach {apart.rate.median / ours.rate.median:.2f} of the "
            "rate of one"
        )
    return told


def _line(report: Report, system: str, load: Load) -> Line | None:
    lines = report.lines()
    return next((line for line in lines if (line.system, line.load) == (system, load)), None)


def _loads(report: Report) -> list[Load]:
    found = {line.load for line in report.lines()}
    return sorted(found, key=lambda load: (load != MANY, load.callers, load.connections))


def _table(report: Report, load: Load) -> str:
    lines = [line for line in report.lines() if line.load == load]
    peers = any(line.ours_over_it for line in lines)
    head = ["system", "cycles/s", "p50 ms", "p99 ms", "CPU ms per cycle"]
    if peers:
        head += [f"{way.removeprefix('nodrop-')} / it" for way in OURS]
    rows: list[list[str]] = []
    for line in lines:
        about = report.about[line.system]
        row = [f"**{about.title}**" if about.ours else about.title, _spread(line.rate, 0)]
        row += [_median(line.p50_ms, 1), _median(line.p99_ms, 1), _median(line.cpu_ms, 2)]
        if peers:
            row += [_spread(line.ours_over_it.get(way), 1) for way in OURS]
        rows.append(row)
    return f"## {_callers(load).capitalize()}\n\n{_markdown(head, rows)}"


def _failures(report: Report) -> str:
    told = [
        f"- {report.about[line.system].title}, {_callers(line.load)}, {failure}"
        for line in report.lines()
        for failure in line.failures
    ]
    told += [
        f"- {report.about[name].title} was not installed ({', '.join(missing)})"
        for name, missing in report.absent.items()
    ]
    return "Left out:\n\n" + "\n".join(told) + "\n" if told else ""


def _systems(report: Report) -> str:
    rows = [
        [
            about.title,
            ", ".join(f"{package} {v}" for package, v in report.versions[name].items()),
            about.durability,
            about.cycle,
        ]
        for name, about in report.about.items()
        if name in report.versions
    ]
    head = ["system", "versions", "durability", "cycle"]
    return f"## Versions and settings\n\n{_markdown(head, rows)}"


# --- alone --------------------------------------------------------------------------------------


def _growth(growth: Growth) -> str:
    rows = [
        [
            f"{line.past:,}",
            f"{growth.megabytes[line.past]:,}",
            _callers(line.load),
            _spread(line.rate, 0),
            _median(line.p50_ms, 1),
            _median(line.p99_ms, 1),
            _spread(line.over_least, 2),
        ]
        for line in growth.lines()
    ]
    head = ["past handoffs", "MB", "load", "cycles/s", "p50 ms", "p99 ms", "of the emptiest"]
    return (
        f"## Growth{' on PostgreSQL' if growth.store == POSTGRES else ''}\n\n"
        "The same over WebSocket on stores with a past: handoffs that were completed and settled, "
        "with log, bodies, keys and inboxes, written in bulk by the store's own code. "
        f"On {_machine(growth.machine)}, {growth.rounds} interleaved rounds, windows of "
        f"{growth.window.seconds:g} s.\n\n{_markdown(head, rows)}"
    )


def _idle(idle: Idle) -> str:
    rows = [
        ["an idle relay", f"{idle.idle_mb:,.0f} MiB", ""],
        [f"{idle.open:,} open handoffs", f"{idle.open_mb:,.0f} MiB", ""],
        [f"{idle.waiting:,} waiting callers", f"{idle.waiting_mb:,.0f} MiB", _of(idle.waiting_cpu)],
        [
            f"{idle.agents:,} idle connected agents",
            f"{idle.agents_mb:,.0f} MiB",
            _of(idle.agents_cpu),
        ],
    ]
    return (
        "## Idle\n\n"
        f"{_markdown(['a relay with', 'resident', 'processor'], rows)}\n"
        "A delivery reaches an idle worker "
        f"{idle.delivery_p50_ms:.2f} ms (p50; p99 {idle.delivery_p99_ms:.2f} ms) after the "
        f"answer to its offer, which leaves after the commit; {idle.deliveries} offers, one at a "
        f"time, on {_machine(idle.machine)}.\n"
    )


def _finding(finding: Finding) -> str:
    rows = [
        [
            f"{each.agents:,}",
            f"{each.offering:,}",
            f"{each.find_ms:.1f}",
            f"{each.find_again_ms:.1f}",
            f"{each.route_ms:.1f}",
        ]
        for each in finding.timings
    ]
    head = ["agents", "offer it", "find, ms", "find again, ms", "hand off by capability, ms"]
    return (
        "## Finding\n\n"
        "Medians of a query by capability, with a shape to send and a shape to get, in a relay "
        "with five capabilities for each agent, no two of which return the same shape; shapes that "
        f"nobody asked about before, and the same again. On {_machine(finding.machine)}.\n\n"
        f"{_markdown(head, rows)}"
    )


# --- words --------------------------------------------------------------------------------------


def _machine(machine: Machine) -> str:
    busy = " (**busy: do not quote**)" if machine.busy else ""
    return (
        f"{machine.cores} cores ({machine.processor}), {machine.system}, Python {machine.python}, "
        f"fdatasync {machine.sync_p50_ms:.1f} ms, load average {machine.load_average:.1f} before{busy}"
    )


def _callers(load: Load) -> str:
    if load.callers == 1:
        return "one caller"
    apart = f" on {load.connections} connections" if load.connections > 1 else ""
    return f"{load.callers} callers{apart}"


def _of(share: float) -> str:
    return f"{share * 100:.1f} % of a core"


def _spread(spread: Spread | None, digits: int) -> str:
    if spread is None:
        return ""
    low, high = f"{spread.low:,.{digits}f}", f"{spread.high:,.{digits}f}"
    return f"{spread.median:,.{digits}f} ({low} to {high})"


def _median(spread: Spread | None, digits: int) -> str:
    return "" if spread is None else f"{spread.median:,.{digits}f}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
