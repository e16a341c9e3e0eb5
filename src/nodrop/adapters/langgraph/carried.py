"""The checkpoints of a graph that keeps none itself, carried along with its handoff.

Taken and put back through the interface of every checkpointer; what they hold is LangGraph's own
business, and is serialized by its own serializer.
"""

import base64
from typing import Any

from nodrop.adapters.port.installed import needs

with needs("langgraph", "1.2", extra="langgraph"):
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.memory import InMemorySaver


async def taken(saver: InMemorySaver, place: RunnableConfig) -> list[dict[str, str]]:
    """Return the last checkpoint of the graph, and of each graph inside of it, as plain JSON."""
    last: dict[str, dict[str, str]] = {}
    async for saved in saver.alist(place):
        inside: str = saved.config.get("configurable", {})["checkpoint_ns"]
        if inside not in last:  # they come newest first
            parts = (saved.checkpoint, saved.metadata, saved.pending_writes)
            kind, data = saver.serde.dumps_typed(parts)
            last[inside] = {"ns": inside, "kind": kind, "data": base64.b64encode(data).decode()}
    return list(last.values())


async def put_back(
    saver: InMemorySaver, place: RunnableConfig, checkpoints: list[dict[str, str]]
) -> None:
    """Have `saver` know what another one knew."""
    for saved in checkpoints:
        data = base64.b64decode(saved["data"])
        checkpoint, metadata, writes = saver.serde.loads_typed((saved["kind"], data))
        there: dict[str, Any] = {**place.get("configurable", {}), "checkpoint_ns": saved["ns"]}
        versions = checkpoint["channel_versions"]
        kept = await saver.aput(RunnableConfig(configurable=there), checkpoint, metadata, versions)
        for task_id, channel, value in writes or ():
            await saver.aput_writes(kept, [(channel, value)], task_id)
