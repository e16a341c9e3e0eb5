"""XES (IEEE 1849): cases, and who held them.

| XES | becomes |
|---|---|
| a trace's `concept:name` | a chain |
| the first event | an offer by `(start)` to its holder |
| an event by another holder than the one before | completed by that one, and offered to this one |
| `org:group`, else `org:resource` | the holder |
| the last event, if its name is a kind of `complete` or `closed` | completed and settled |

What is done is not taken for a capability: a case that comes back to a holder for something else
has come back all the same.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple
from xml.etree import ElementTree as ET

from nodrop.analysis.record import COMPLETED, Record
from nodrop.analysis.sources.files import not_a_log, open_log
from nodrop.protocol.times import parse_time

START: Final = "(start)"
_ENDS: Final = ("complete", "close", "resolve", "cancel")


class _Event(NamedTuple):
    at: int
    holder: str
    name: str


def read(path: Path, record: Record, *, holder: str | None = None) -> None:
    """Read every trace into `record`.

    Args:
        path: the file, plain or .gz.
        record: where to.
        holder: the attribute that says who holds the case.

    Raises:
        InvalidRequestError: it is no XES.
    """
    seq = 0
    with open_log(path) as file:
        try:
            for case, events in _traces(file, holder):
                seq = _case(record, case, events, seq)
        except ET.ParseError as error:
            raise not_a_log(path, error.position[0], "xes", error) from error
        except ValueError as error:
            raise not_a_log(path, 0, "xes", error) from error


def _traces(file: IO[bytes], holder: str | None) -> Iterator[tuple[str, list[_Event]]]:
    # A user's own file, and expat bounds what entities may grow to.
    parsed: Iterator[tuple[str, ET.Element]] = ET.iterparse(file, events=("end",))  # noqa: S314
    number = 0
    for _, element in parsed:
        if element.tag.rpartition("}")[2] != "trace":
            continue
        number += 1
        case, events = f"case {number}", list[_Event]()
        for child in element:
            if child.tag.rpartition("}")[2] == "event":
                values = {each.get("key"): each.get("value", "") for each in child}
                who = values.get(holder) if holder else None
                who = who or values.get("org:group") or values.get("org:resource") or "(nobody)"
                at = parse_time(values["time:timestamp"]) if "time:timestamp" in values else 0
                events.append(_Event(at, who, values.get("concept:name", "")))
            elif child.get("key") == "concept:name":
                case = child.get("value", case)
        element.clear()
        if events:
            yield case, events


def _case(record: Record, case: str, events: list[_Event], seq: int) -> int:
    held, hop = START, 0
    for event in events:
        seq += 1
        record.event(event.at)
        if event.holder == held:
            record.touch(f"{case}#{hop}", seq=seq, at=event.at)
            continue
        if hop:
            _end(record, f"{case}#{hop}", seq, event.at)
        hop += 1
        handoff = f"{case}#{hop}"
        record.offer(handoff, seq=seq, at=event.at, chain=case, sender=held, recipient=event.holder)
        record.accept(handoff, seq=seq, at=event.at)
        held = event.holder
    last = events[-1]
    if last.name.lower().startswith(_ENDS):
        _end(record, f"{case}#{hop}", seq, last.at)
    return seq


def _end(record: Record, handoff: str, seq: int, at: int) -> None:
    record.end(handoff, seq=seq, at=at, outcome=COMPLETED)
    record.settle(handoff, seq=seq, at=at)
