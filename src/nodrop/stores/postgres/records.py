"""Values as columns, and back. Knows the order of columns and the bytes in them, runs no statement."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from nodrop.core.contract import Agent
from nodrop.core.model import Handoff
from nodrop.store import Body, Horizon, Row
from nodrop.wire.log import Entry

Columns = tuple[Any, ...]
V = TypeVar("V", bound=msgspec.Struct)

_ENCODER: Final = msgspec.json.Encoder()
_HANDOFF: Final = msgspec.json.Decoder(Handoff)
_AGENT: Final = msgspec.json.Decoder(Agent)
_HORIZON: Final = msgspec.json.Decoder(Horizon)


def columns_of(flat: msgspec.Struct) -> Columns:
    """Return the columns of a value that is kept field by field."""
    return msgspec.structs.astuple(flat)


def value_of(kind: type[V], row: Iterable[Any]) -> V:
    """Return the value whose columns are `row`."""
    return kind(**dict(zip(kind.__struct_fields__, row, strict=True)))


def transposed(rows: Sequence[Columns], width: int) -> list[list[Any]]:
    """Return rows as columns: what a statement takes as one array each."""
    if not rows:
        return [[] for _ in range(width)]
    return [list(column) for column in zip(*rows, strict=True)]


def handoff_columns(row: Row) -> Columns:
    """Return a row of `handoff`, without its watchers."""
    handoff = row.handoff
    return (
        handoff.team,
        handoff.id,
        handoff.version,
        str(handoff.state),
        handoff.attempt,
        handoff.sender,
        handoff.origin,
        handoff.recipient,
        handoff.correlation_id,
        handoff.process,
        row.due_at,
        row.rank,
        row.held,
        row.open,
        row.dead,
        handoff.outcome.at if handoff.outcome else None,
        handoff.settled_at,
        _ENCODER.encode(handoff),
    )


def read_handoff(json: bytes) -> Handoff:
    """Return the handoff that `handoff_columns` was given."""
    return _HANDOFF.decode(json)


def party_columns(handoff: Handoff) -> Iterable[Columns]:
    """Return the rows of `party` for everybody whom `handoff` concerns or concerned."""
    agents = {handoff.sender, handoff.origin, *handoff.asked, *handoff.watchers}
    return [(handoff.team, agent, handoff.id, agent in handoff.watchers) for agent in agents]


def entry_columns(entry: Entry) -> Columns:
    """Return a row of `entry`. Its data is text, so that it can be read with any tool."""
    row = columns_of(entry)
    return (*row[:_DATA], str(bytes(entry.data), "utf-8"), *row[_DATA + 1 :])


def read_entry(row: Columns) -> Entry:
    """Return the entry that `entry_columns` was given."""
    data = msgspec.Raw(row[_DATA].encode())
    return value_of(Entry, (*row[:_DATA], data, *row[_DATA + 1 :]))


_DATA: Final = Entry.__struct_fields__.index("data")


def body_key(entry: Entry) -> tuple[str, str, int]:
    """Return where the body of `entry` is kept: (team, handoff_id, number)."""
    if entry.handoff_id is None or entry.version is None:
        return (entry.team, "", entry.seq)
    return (entry.team, entry.handoff_id, entry.version)


def with_salt(salt: bytes, body: bytes) -> bytes:
    """Return a body as it is kept: behind its salt, whose length comes first."""
    return bytes([len(salt)]) + salt + body


def read_body(kept: bytes) -> Body:
    """Return the body that `with_salt` was given."""
    end = 1 + kept[0]
    return Body(salt=kept[1:end], body=kept[end:])


def agent_columns(agent: Agent) -> Columns:
    """Return a row of `agent`."""
    return (agent.team, agent.id, agent.version, _ENCODER.encode(agent))


def read_agent(json: bytes) -> Agent:
    """Return the agent that `agent_columns` was given."""
    return _AGENT.decode(json)


def horizon_columns(horizon: Horizon) -> Columns:
    """Return a row of `horizon`."""
    return (horizon.team, horizon.seq, _ENCODER.encode(horizon))


def read_horizon(json: bytes) -> Horizon:
    """Return the horizon that `horizon_columns` was given."""
    return _HORIZON.decode(json)
