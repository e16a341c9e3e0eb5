"""Repeats: a command that was carried out before, under the same id, or an offer made before.

Who is turn-based (an assistant, a person at a terminal) has no id to repeat: what it sent is known
by its content, for a while and as long as it is under way.
"""

import functools
import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, compress
from typing import Any, Final

import msgspec

from nodrop.log.port import KeyUse, Place
from nodrop.model import events
from nodrop.model.errors import IdempotencyConflictError
from nodrop.model.events import Event
from nodrop.model.limits import Limits
from nodrop.protocol import canonical, requests
from nodrop.protocol import events as wire_events
from nodrop.protocol.operations import kind_of
from nodrop.protocol.times import Duration
from nodrop.relay.batch import Batch, CommandName
from nodrop.relay.shows import Caller

_LEAVES: Final[Mapping[type[requests.Command], tuple[type[Event], ...]]] = {
    requests.Ack: (events.Acknowledged, events.Updated, events.Queued, events.Rejected),
    requests.Update: (events.Acknowledged, events.Updated),
    requests.Reject: (events.Rejected, events.Reassigned),
    requests.Counter: (events.Blocked, events.Rejected),
    requests.Block: (events.Blocked,),
    requests.Complete: (events.Completed, events.LateResultKept),
    requests.Fail: (events.Failed, events.Returned),
    requests.Release: (events.Returned, events.Parked, events.Failed),
    requests.Step: (events.StepRecorded,),
    requests.Checkpoint: (events.Checkpointed,),
    requests.Answer: (events.Answered, events.LateAnswerKept),
    requests.Agree: (events.Agreed,),
    requests.Decline: (events.Rejected, events.Reassigned),
    requests.Cancel: (events.Cancelled,),
    requests.Reassign: (events.Reassigned,),
    requests.Settle: (events.Settled,),
    requests.Redrive: (events.Redriven,),
    requests.AcceptLate: (events.AcceptedLate,),
    requests.Discard: (events.Discarded,),
    requests.Erase: (events.Erased,),
    requests.Dismiss: (events.Dismissed,),
    requests.Note: (events.Noted,),
}
"""What a command about a handoff leaves in the log, whatever else: one of these."""


@functools.cache
def left_by(command: type[requests.Command]) -> frozenset[str]:
    """Return the types of entries by which a repeat of such a command is known as one."""
    left = next((_LEAVES[kind] for kind in command.__mro__ if kind in _LEAVES), ())
    return frozenset(wire_events.NAMES[kind] for kind in left)


_NOT_SAID: Final = frozenset(
    {"command_id", "traceparent", "signature", "turn_based", "wait", "brief"}
)
"""Fields that a repeat may have otherwise: a new span or signature, less time to wait, a shorter answer."""
_SMALL: Final = (str, int, bool, str | None, int | None, Duration | None)
_DIGEST_BYTES: Final = 16
_chained: Final = chain.from_iterable


def request_digest(request: requests.Command, name: str | None = None) -> bytes:
    """Return the digest of what a command asks for: equal for a repeat, however it is spelled.

    Args:
        request: the command.
        name: what it is about, where the request does not say so. The handoff is not named here:
            it may be referred to in several ways, and is compared by itself.
    """
    content = _content_of(request.__class__)
    values = content.of(request)
    if not content.bulky:
        return _digest_of_few(content, name, *values)
    return hashlib.blake2b(_written(content, name, values), digest_size=_DIGEST_BYTES).digest()


@functools.lru_cache(maxsize=1_024, typed=True)  # by type: 1 and 1.0 are equal keys
def _digest_of_few(content: "_Content", name: str | None, *values: Any) -> bytes:
    """Return the digest of a request that holds no data: most say the same as others."""
    return hashlib.blake2b(_written(content, name, values), digest_size=_DIGEST_BYTES).digest()


def _written(content: "_Content", name: str | None, values: tuple[Any, ...]) -> bytes:
    odd = map(operator.ne, values, content.defaults)
    said = [content.kind, name, *_chained(compress(zip(content.fields, values), odd))]  # noqa: B905  # of one length
    if content.raw:
        said = [_plain(value) if type(value) is msgspec.Raw else value for value in said]
    return canonical.dumps(said)


class _Content(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The fields that a repeat must have as the first time.

    What has its default is left out: a field that is added later makes no repeat another request.
    """

    kind: str
    fields: tuple[str, ...]
    defaults: tuple[Any, ...]
    of: Callable[[requests.Command], tuple[Any, ...]]
    raw: bool
    """Whether it holds data as it was written."""
    bulky: bool
    """Whether it may hold data, which is long and no key of a cache."""


@functools.cache
def _content_of(read_as: type[requests.Command]) -> _Content:
    kind = kind_of(read_as)
    fields = [f for f in msgspec.structs.fields(kind) if f.name not in _NOT_SAID]
    names = tuple(field.name for field in fields)
    return _Content(
        kind=kind.__name__,
        fields=names,
        raw=any(field.type is msgspec.Raw for field in fields),
        bulky=not all(field.type in _SMALL for field in fields),
        defaults=tuple(field.default for field in fields),
        of=operator.attrgetter(*names)
        if len(names) > 1
        else lambda r: tuple([getattr(r, n) for n in names]),
    )


def _plain(raw: msgspec.Raw) -> Any:
    try:
        return canonical.loads(bytes(raw))
    except msgspec.DecodeError:
        return bytes(raw)


def done_before(
    batch: Batch,
    caller: Caller,
    command_id: str | None,
    *,
    leaves: frozenset[str],
    request: bytes | None,
    about: str | None = None,
) -> Sequence[Place]:
    """Return what the caller's command of this id wrote; nothing if there was none.

    Args:
        batch: the working set.
        caller: whose id it is.
        command_id: the id.
        leaves: the types of entries of which such a command writes one.
        request: the digest of what is asked for now, kept with what will be written; None: what is
            asked for is known by the id alone.
        about: the handoff that the command is about.

    Raises:
        IdempotencyConflictError: the id was used for something else.
    """
    if command_id is None:
        return ()
    command = (caller.team, caller.agent, command_id)
    return repeated(batch, command, leaves, request, about)


def repeated(
    batch: Batch,
    command: CommandName,
    leaves: frozenset[str],
    request: bytes | None,
    about: str | None = None,
) -> Sequence[Place]:
    """Return the same for the name of a command."""
    if places := batch.places(command):
        another = about is not None and all(place.handoff_id != about for place in places)
        differs = any(_differ(place.request, request) for place in places)
        if another or differs or leaves.isdisjoint(place.type for place in places):
            raise conflict(command[2])
        return places
    written = batch.written_by(command)
    if written is not None and (written.type not in leaves or _differ(written.request, request)):
        raise conflict(command[2])
    if request is not None:
        batch.requests[command] = request
    else:
        batch.requests.setdefault(command, None)
    return ()


def _differ(first: bytes | None, now: bytes | None) -> bool:
    """Whether two requests are known to be different: older entries do not say."""
    return first is not None and now is not None and first != now


def conflict(command_id: str) -> IdempotencyConflictError:
    """Return the refusal of another request under a used id."""
    return IdempotencyConflictError(
        f"command_id {command_id} was used for another command",
        next_step="Make a new command_id for every command; a repeat says the same as the first.",
    )


# --- offers --------------------------------------------------------------------------------------

_CONTENT: Final = "≡"
"""Begins the name that an offer's content is remembered by: no key that a caller can send."""


class Unloaded(msgspec.Struct, frozen=True, kw_only=True):
    """An offer looks like one whose handoff is not at hand: to be decided again, with it."""

    handoff_id: str


def digest_of(request: requests.Offer, sender: str) -> str:
    """Return the digest of an offer as sent: what must be equal for it to be a repeat."""
    if request.from_ is not None:
        request = msgspec.structs.replace(request, from_=None)  # it is told by `sender`
    content = _content_of(request.__class__)
    return hashlib.sha256(_written(content, sender, content.of(request))).hexdigest()


def name_of(digest: str) -> str:
    """Return what a turn-based offer without a key is remembered by: its content."""
    return _CONTENT + digest


def offered_before(batch: Batch, use: KeyUse, digest: str, limits: Limits) -> str | Unloaded | None:
    """Return the handoff that an offer remembered as `use` made; None if it is not the same any more.

    Raises:
        IdempotencyConflictError: its key was used for another request.
    """
    if not use.key.startswith(_CONTENT):
        if use.digest != digest:
            raise IdempotencyConflictError(
                f"{use.sender}/{use.key} is handoff {use.handoff_id}, made by another request"
            )
        return use.handoff_id
    first = batch.find(use.team, use.handoff_id)
    if first is None:
        return Unloaded(handoff_id=use.handoff_id)
    recent = batch.now <= first.stored_at + limits.recognise_ms
    return use.handoff_id if recent and not first.final else None
