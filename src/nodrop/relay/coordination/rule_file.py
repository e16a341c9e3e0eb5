"""Triggers that stand in `nodrop.toml`: a relay that is started with the file follows it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol.coordination.trigger_requests import ListTriggers, PutTrigger, RemoveTrigger
from nodrop.protocol.coordination.trigger_views import TriggersAnswer
from nodrop.relay.relay import Caller, Relay


async def follow(relay: Relay, caller: Caller, written: Sequence[Mapping[str, Any]]) -> None:
    """Set the rules that a file holds, and take away those that it no longer holds.

    Raises:
        InvalidRequestError: with the place in the file that is wrong.
    """
    names: set[str] = set()
    for index, entry in enumerate(written):
        path = f"triggers[{index}]"
        name, rule = _read(entry, path)
        if name in names:
            raise _wrong(f"{path}.name", f"{name!r} is there twice")
        names.add(name)
        try:
            await relay.call(caller, "put_trigger", rule, name=name)
        except InvalidRequestError as error:
            error.errors = tuple(
                Problem(path=f"{path}.{p.path}", message=p.message) for p in error.errors
            )
            raise
    answer = (await relay.call(caller, "triggers", ListTriggers())).answer
    assert isinstance(answer, TriggersAnswer), "that is how triggers are listed"
    for trigger in answer.triggers:
        if trigger.from_file and trigger.name not in names:
            await relay.call(caller, "remove_trigger", RemoveTrigger(), name=trigger.name)


def _read(entry: Mapping[str, Any], path: str) -> tuple[str, PutTrigger]:
    fields = dict(entry)
    name = fields.pop("name", None)
    if not isinstance(name, str):
        raise _wrong(f"{path}.name", "required")
    try:
        return name, msgspec.convert({**fields, "from_file": True}, PutTrigger)
    except msgspec.ValidationError as error:
        raise _wrong(path, str(error)) from error


def _wrong(path: str, message: str) -> InvalidRequestError:
    problem = Problem(path=path, message=message)
    return InvalidRequestError(f"nodrop.toml: {path}: {message}", errors=(problem,))
