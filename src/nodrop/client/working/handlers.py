"""A function that does the work: what it takes, what it returns, how a payload becomes arguments.

- The task goes to the parameter hinted as one, or called `task` without a hint, wherever it stands.
- Every other parameter takes the key of its name; one with a default may be missing. Keys that
  nobody names are left in `task.payload`, or go to `**others`.
- A lone parameter that is an object, or anything at all, takes the whole payload unless there is a
  key of its name. A payload that is no object can go only to a lone parameter.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

import msgspec

from nodrop.client.endings import Fail
from nodrop.client.values import plain
from nodrop.client.working.blocking_task import BlockingTask
from nodrop.client.working.constraints import UNIONS
from nodrop.client.working.hints import Hint, document
from nodrop.client.working.task import Task
from nodrop.model.errors import NodropError
from nodrop.protocol.decoding import encode_strict

TASK_NAME: Final = "task"
_RECEIVERS: Final = frozenset({"self", "cls"})
"""What the first parameter of a function in a class is called."""


class Parameter:
    """One parameter that takes something of the payload."""

    def __init__(self, parameter: inspect.Parameter, hint: Hint) -> None:
        self.name = parameter.name
        self.required = parameter.default is inspect.Parameter.empty
        self.default = parameter.default
        self.hint = hint

    @property
    def takes_all(self) -> bool:
        """Whether, standing alone, it can be the whole payload."""
        return self.hint.anything or self.hint.is_object

    def is_whole(self, payload: dict[str, Any]) -> bool:
        """Whether, standing alone, it means all of `payload` rather than the key of its name."""
        return self.takes_all and (self.name not in payload or self.name in self.hint.properties)

    def schema(self) -> dict[str, Any]:
        """Return its schema, with the default if JSON can say it."""
        if self.required:
            return self.hint.schema
        try:
            default = plain(self.default)
            encode_strict({"default": default})
        except (TypeError, ValueError, NodropError):  # such as infinity
            return self.hint.schema
        return {**self.hint.schema, "default": default}

    def convert(self, value: Any) -> Any:
        """Return the argument that `value` is."""
        try:
            return self.hint.convert(value)
        except msgspec.ValidationError as error:
            raise _misfit(f"{self.name}: {error}") from error


class Handler:
    """A function and how it is called for a delivery."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the signature of `function`.

        Raises:
            TypeError: it cannot handle anything, or a parameter cannot be filled from JSON.
        """
        self.function = function
        self.is_async = inspect.iscoroutinefunction(_annotated(function))
        self._task: str | None = None
        self._positional: list[str] = []
        self._others: Hint | None = None
        self.parameters: list[Parameter] = []
        try:
            parameters, hints = _signature(function)
            for parameter in parameters:
                self._read(parameter, hints)
            self._returns = _returned(hints)
        except TypeError as error:
            raise TypeError(f"{self._name()}: {error}") from error
        self._lone = self.parameters[0] if len(self.parameters) == 1 and not self._others else None
        self._required = [parameter.name for parameter in self.parameters if parameter.required]
        self._names = frozenset(self._required)
        """Of those that are required."""
        self._defaults = {parameter.name: parameter.default for parameter in self.parameters}
        self._taken = [(p.name, p.hint.exact, p.convert) for p in self.parameters]
        """What each parameter is called, which type it takes as it is, and what makes it of others."""

    def input_schema(self) -> dict[str, Any] | None:
        """Return what payloads must look like; None: like anything."""
        lone = self._lone
        if not self.parameters and self._others is None:
            return None
        if lone is not None and lone.takes_all:
            return None if lone.hint.anything else document(lone.hint.schema, lone.hint.defs)
        # Who hands over nothing at all leaves out everything that may be.
        schema: dict[str, Any] = {"type": "object" if self._required else ["object", "null"]}
        defs: dict[str, Any] = {}
        for parameter in self.parameters:
            schema.setdefault("properties", {})[parameter.name] = parameter.schema()
            defs |= parameter.hint.defs
        if self._required:
            schema["required"] = self._required
        if self._others is not None and not self._others.anything:
            schema["additionalProperties"] = self._others.schema
            defs |= self._others.defs
        return document(schema, defs)

    def output_schema(self) -> dict[str, Any] | None:
        """Return what results look like; None where the function does not say."""
        if self._returns is None or self._returns.anything:
            return None
        return document(self._returns.schema, self._returns.defs)

    def bind(self, task: Task | BlockingTask, payload: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments for a payload.

        Raises:
            Fail: the payload does not fit, and will not fit the next time.
        """
        named = self._arguments(payload)
        if self._task is not None:
            named[self._task] = task
        if not self._positional:
            return [], named
        positional = [named.pop(name, self._defaults.get(name)) for name in self._positional]
        return positional, named

    def _read(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> None:
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            self._positional.append(parameter.name)
        kind = hints.get(parameter.name, Any)
        if _is_task(kind) or (parameter.name == TASK_NAME and parameter.name not in hints):
            self._read_task(parameter.name, kind)
            return
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise TypeError(f"a payload cannot fill *{parameter.name}")
        if parameter.name in _RECEIVERS and parameter.name not in hints:
            raise TypeError(f"{parameter.name} is not there yet: hand in the method of an object")
        try:
            hint = Hint(kind)
        except TypeError as error:
            raise TypeError(f"{parameter.name}: {error}") from error
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            self._others = hint
        else:
            self.parameters.append(Parameter(parameter, hint))

    def _read_task(self, name: str, kind: Any) -> None:
        if self._task is not None:
            raise TypeError(f"{self._task} and {name} are both the task")
        if self.is_async and kind is BlockingTask:
            raise TypeError(f"{name}: an async function gets a Task, whose calls are awaited")
        self._task = name

    def _arguments(self, payload: Any) -> dict[str, Any]:
        if not self._taken and self._others is None:
            return {}
        named = cast("dict[str, Any]", payload) if isinstance(payload, dict) else None
        if named is None and payload is None and not self._required:
            return {}
        lone = self._lone
        if lone is not None and (named is None or lone.is_whole(named)):
            return {lone.name: lone.convert(payload)}
        if named is None:
            raise _misfit("the payload is not an object")
        if not self._names <= named.keys():
            missing = [name for name in self._required if name not in named]
            raise _misfit(f"the payload lacks {', '.join(missing)}")
        arguments = {
            name: value if type(value := named[name]) is exact else convert(value)
            for name, exact, convert in self._taken
            if name in named
        }
        if self._others is not None:
            others = {name: named[name] for name in named if name not in arguments}
            others.pop(self._task or "", None)
            arguments |= {name: self._others.convert(value) for name, value in others.items()}
        return arguments

    def _name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))


def _signature(function: Callable[..., Any]) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """Return the parameters of `function` and its hints, by name.

    Raises:
        TypeError: it has none that can be read, or does not return what it makes.
    """
    if isinstance(function, type):
        raise TypeError("a class handles nothing: hand in an object of it that can be called")
    annotated = _annotated(function)
    if inspect.isgeneratorfunction(annotated) or inspect.isasyncgenfunction(annotated):
        raise TypeError("a handler returns its result; on the way there, task.update tells of it")
    try:
        hints = get_type_hints(annotated, include_extras=True)
        return list(inspect.signature(function).parameters.values()), hints
    except NameError as error:
        advice = "import or define it in its module, and not only for type checkers"
        raise TypeError(f"a hint cannot be read: {error}; {advice}") from error
    except ValueError as error:  # a builtin that does not say
        raise TypeError(str(error)) from error


def _returned(hints: Mapping[str, Any]) -> Hint | None:
    if "return" not in hints:
        return None
    try:
        return Hint(hints["return"], mode="serialization")
    except TypeError as error:
        raise TypeError(f"what it returns: {error}") from error


def _is_task(kind: Any) -> bool:
    """Whether a hint means the task, one that may be missing included."""
    members = get_args(kind) if get_origin(kind) in UNIONS else (kind,)
    named = [member for member in members if member is not type(None)]
    return bool(named) and all(member in (Task, BlockingTask) for member in named)


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that carries the annotations: of a partial, of an object with a call."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _misfit(reason: str) -> Fail:
    return Fail(reason, code="payload_invalid")
