"""Graphs of LangGraph at work: one thread of a graph per handoff."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from nodrop.adapters.langgraph import carried
from nodrop.adapters.port.events import MISFIT, Done, Event, NeedHelp, Progress, Resume, Work, text
from nodrop.adapters.port.installed import needs
from nodrop.client.endings import Fail

with needs("langgraph", "1.2", extra="langgraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import Command

Graph = CompiledStateGraph[Any, Any, Any, Any]

INTERRUPT = "__interrupt__"
MESSAGES = "messages"
WHOLE = "__root__"
"""The channel of a graph whose state is one value."""


class GraphDriver:
    """Runs a graph."""

    def __init__(self, graph: Graph, answer: str | None) -> None:
        self._graph = graph
        self._answer = answer
        self._channels = graph.stream_channels_list
        if answer is not None and answer not in self._channels:
            raise ValueError(f"the graph has no {answer!r}: answer is one of {self._channels}")

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        place = RunnableConfig(configurable={"thread_id": work.id})
        graph, saver = self._graph, None
        if not isinstance(graph.checkpointer, BaseCheckpointSaver):
            saver = InMemorySaver()
            graph = graph.copy({"checkpointer": saver})
        state: Any = None
        if resume is not None:
            if saver is not None:
                await carried.put_back(saver, place, resume.state["checkpoints"])
            given: Any = Command(resume=_answers(resume))
        else:
            before = await graph.aget_state(place)
            state = before.values
            if state and not before.next:  # an earlier attempt came to the end, and no further
                yield Done(output=self._output(state))
                return
            given = None if before.next else self._input(work)
        pauses: list[Any] = []
        stream = graph.astream(
            given, place, stream_mode=["updates", "custom", "values"], durability="sync"
        )
        # Read to its end: what was interrupted is saved only after the last of the stream.
        async with aclosing(cast("AsyncGenerator[tuple[str, Any]]", stream)) as chunks:
            async for mode, chunk in chunks:
                if mode == "values":
                    state = chunk
                elif mode == "custom":
                    yield Progress(status=text(chunk))
                elif INTERRUPT in chunk:
                    pauses += chunk[INTERRUPT]
                else:
                    yield Progress(status="/".join(chunk))
        if not pauses:
            yield Done(output=self._output(state))
            return
        asked = [pause.value for pause in pauses]
        parked = {
            "ids": [pause.id for pause in pauses],
            "checkpoints": [] if saver is None else await carried.taken(saver, place),
        }
        yield NeedHelp(question=text(asked[0] if len(asked) == 1 else asked), state=parked)

    def _input(self, work: Work) -> Any:
        if WHOLE in self._channels:
            return work.payload
        fields = {name: value for name, value in work.fields.items() if name in self._channels}
        if MESSAGES in self._channels:
            fields.setdefault(MESSAGES, [{"role": "user", "content": work.prompt}])
        if work.fields and not fields:
            reason = f"none of {list(work.fields)} is of this graph: it has {self._channels}"
            raise Fail(reason, code=MISFIT)
        return fields

    def _output(self, state: Any) -> Any:
        if self._answer is not None:
            return state.get(self._answer)
        if not isinstance(state, dict) or MESSAGES not in state:
            return state
        rest = {name: value for name, value in state.items() if name != MESSAGES}
        return rest or str(state[MESSAGES][-1].text)


def _answers(resume: Resume) -> Any:
    """Return the answer; to several pauses at once, by the pause's id, or the same for each."""
    ids: list[str] = resume.state["ids"]
    if len(ids) == 1:
        return resume.answer
    several = resume.answer if isinstance(resume.answer, dict) else {}
    return {one: several.get(one, resume.answer) for one in ids}
