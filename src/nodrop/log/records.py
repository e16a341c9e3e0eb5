"""Values as rows, and back. Knows the order of columns and the bytes in them, runs no statement.

Where a table has the columns of a value in the order of its fields, `columns_of` and `value_of` are all
it takes; the others have functions of their own.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from nodrop.log.port import Horizon
from nodrop.log.state import Kept, Snapshot, Stub
from nodrop.model.contract import Agent
from nodrop.model.handoff import Handoff

Columns = tuple[Any, ...]
V = TypeVar("V", bound=msgspec.Struct)

_ENCODER: Final = msgspec.json.Encoder()
_HANDOFF: Final = msgspec.json.Decoder(Handoff)
_AGENT: Final = msgspec.json.Decoder(Agent)
_HORIZON: Final = msgspec.json.Decoder(Horizon)


columns_of: Final = msgspec.structs.astuple
"""Returns the columns of a value that is kept field by field."""


def value_of(kind: type[V], row: Columns) -> V:
    """Return the value whose columns are `row`."""
    return kind(**dict(zip(kind.__struct_fields__, row, strict=True)))


# --- handoffs ------------------------------------------------------------------------------------


def handoff_columns(snapshot: Snapshot) -> Columns:
    """Return a row of `handoff`."""
    row = snapshot.row
    handoff = row.handoff
    return (
        handoff.team,
        handoff.id,
        snapshot.applied,
        handoff.state.value,
        handoff.sender,
        handoff.origin,
        handoff.recipient,
        handoff.correlation_id,
        handoff.process if row.held else None,
        row.due_at,
        row.rank,
        row.open,
        row.dead,
        handoff.outcome.at if handoff.outcome else None,
        handoff.settled_at,
        snapshot.trail_from,
        packed(snapshot.trail),
        _ENCODER.encode(handoff),
    )


KEPT: Final = "json, applied_seq, seqs_from, seqs"
"""The columns that `read_kept` reads."""


def read_kept(row: Columns) -> Kept:
    """Return a handoff as its row has it."""
    handoff = read_handoff(row[0])
    return Kept(handoff, row[1], unpacked(row[3]), row[2], handoff.asked)


STUB: Final = "recipient, origin, correlation_id, process, due_at, rank, ended_at"
"""The columns that `read_stub` reads."""


def read_stub(row: Columns) -> Stub:
    """Return what an open handoff is found by."""
    return Stub(
        recipient=row[0],
        origin=row[1],
        correlation_id=row[2],
        process=row[3],
        due_at=row[4],
        rank=row[5],
        ended=row[6] is not None,
    )


def read_handoff(json: bytes) -> Handoff:
    """Return the handoff that a row was made of."""
    return _HANDOFF.decode(json)


def party_columns(handoff: Handoff) -> Iterable[Columns]:
    """Return the rows of `party`: for everybody whom `handoff` concerns or concerned, and its marks.

    No agent can be called like a mark, which has a `=`.
    """
    agents = {handoff.sender, handoff.origin, *handoff.asked, *handoff.watchers}
    return [(handoff.team, name, handoff.id) for name in (*agents, *handoff.terms.marks)]


def packed(seqs: Sequence[int]) -> bytes:
    """Return places in the log as they are kept."""
    return array("Q", seqs).tobytes()


def unpacked(seqs: bytes) -> list[int]:
    """Return the places that `packed` was given."""
    return list(array("Q", seqs))


# --- agents and horizons -------------------------------------------------------------------------


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
