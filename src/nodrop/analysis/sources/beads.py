"""Beads: the events of issues, as `.beads/backup/events.jsonl` keeps them.

| event | becomes |
|---|---|
| `status_changed` to `hooked` | an offer by the actor to the assignee; again, if it is not the first |
| `status_changed` to `in_progress` | accepted |
| `status_changed` to `open` | given back |
| `closed` | completed, and settled |
| `reopened` | nothing; the next `hooked` is the offer again |
| `notes`, closing words | said by the actor in the issue's channel |
"""

from pathlib import Path
from typing import Any

import msgspec

from nodrop.analysis.record import COMPLETED, Record
from nodrop.analysis.sources.files import not_a_log, open_log
from nodrop.protocol.times import parse_time


class _Event(msgspec.Struct):
    id: int
    actor: str
    created_at: str
    event_type: str
    issue_id: str
    new_value: str | None = None


def read(path: Path, record: Record) -> None:
    """Read the events of a folder's backup into `record`, in their order.

    Raises:
        InvalidRequestError: it is no such file.
    """
    decoder = msgspec.json.Decoder(_Event)
    events: list[_Event] = []
    with open_log(path) as file:
        for number, line in enumerate(file, 1):
            try:
                events.append(decoder.decode(line))
            except msgspec.MsgspecError as error:
                raise not_a_log(path, number, "beads", error) from error
    source = _Issues(record)
    for event in sorted(events, key=lambda each: each.id):
        source.read(event)


class _Issues:
    def __init__(self, record: Record) -> None:
        self._record = record
        self._times: dict[str, int] = {}

    def read(self, event: _Event) -> None:
        seq, at, issue = event.id, parse_time(event.created_at), event.issue_id
        record = self._record
        record.event(at)
        handoff = f"{issue}#{self._times.get(issue, 0)}"
        new = _fields(event.new_value)
        match event.event_type, new.get("status"):
            case "status_changed", "hooked":
                times = self._times[issue] = self._times.get(issue, 0) + 1
                record.offer(
                    f"{issue}#{times}",
                    seq=seq,
                    at=at,
                    chain=issue,
                    sender=event.actor,
                    recipient=str(new.get("assignee") or event.actor),
                    again=times > 1,
                )
            case "status_changed", "in_progress":
                record.accept(handoff, seq=seq, at=at)
            case "status_changed", "open":
                record.give_back(handoff, seq=seq, at=at)
            case "closed", _:
                record.close(issue, seq=seq, at=at, agent=event.actor)
                record.end(handoff, seq=seq, at=at, outcome=COMPLETED)
                record.settle(handoff, seq=seq, at=at)
            case _:
                record.touch(handoff, seq=seq, at=at)
        words = new.get("notes") if event.event_type == "updated" else None
        if event.event_type == "closed" and not new:
            words = event.new_value
        if isinstance(words, str) and words:
            record.say(f"agent {event.actor}", seq=seq, at=at, author=event.actor, text=words)


def _fields(written: str | None) -> dict[str, Any]:
    if not written or not written.startswith("{"):
        return {}
    try:
        return msgspec.json.decode(written, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
