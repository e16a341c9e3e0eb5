"""One thing an agent can do: the handler, what is published about it, how many run at once."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, cast

from nodrop.client.durations import Duration, seconds
from nodrop.client.values import given, listed
from nodrop.client.working.handlers import Handler
from nodrop.client.working.hints import Hint, Mode, document


class Capability:
    """A handler with its terms. Without a name it is for handoffs that name no capability."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: Duration | None = None,
        reliability_sla: float | None = None,
        concurrency: int | None = None,
        tags: Iterable[str] = (),
        input_schema: Any = None,
        output_schema: Any = None,
    ) -> None:
        self.name = name
        self.handler = Handler(function)
        self.concurrency = concurrency
        self._description = description or _first_line(function)
        self._timeout_seconds = None if timeout is None else seconds(timeout)
        self._reliability_sla = reliability_sla
        self._tags = listed(tags, "tags")
        self._input_schema = _schema(input_schema, "validation") or self.handler.input_schema()
        self._output_schema = _schema(output_schema, "serialization") or (
            self.handler.output_schema()
        )

    def declared(self) -> dict[str, Any]:
        """Return its part of the manifest: only what was said."""
        return given(
            name=self.name,
            description=self._description,
            input_schema=self._input_schema,
            output_schema=self._output_schema,
            timeout_seconds=self._timeout_seconds,
            reliability_sla=self._reliability_sla,
            tags=self._tags or None,
            concurrency=self.concurrency,
        )


def _schema(said: Any, mode: Mode) -> dict[str, Any] | None:
    """Return a schema that was said outright, or as the type that stands for it."""
    if said is None or isinstance(said, dict):
        return cast("dict[str, Any] | None", said)
    hint = Hint(said, mode=mode)
    return document(hint.schema, hint.defs)


def _first_line(function: Callable[..., Any]) -> str | None:
    documentation = inspect.getdoc(function) if inspect.isroutine(function) else None
    return documentation.splitlines()[0] if documentation else None
