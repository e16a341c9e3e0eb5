"""Workflows of the Microsoft Agent Framework at work.

Their checkpoints are written by the framework's own file storage, in a directory that is there for
the run alone; the last one is parked with the handoff.
"""

import tempfile
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from nodrop.adapters.port.events import Done, Event, Failed, NeedHelp, Progress, Resume, Work, text
from nodrop.adapters.port.installed import needs
from nodrop.adapters.port.turns import Turns

with needs("agent-framework-core", "1.23", extra="agent-framework"):
    from agent_framework import FileCheckpointStorage, Workflow


class WorkflowDriver:
    """Runs a workflow, or one made for each handoff."""

    def __init__(self, target: Workflow | Callable[[], Workflow]) -> None:
        self._turns = Turns[Workflow](target, Workflow)

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        with tempfile.TemporaryDirectory(prefix="nodrop-") as folder:
            async with self._turns.taken() as workflow:
                async for event in _run(workflow, work, resume, Path(folder)):
                    yield event


async def _run(
    workflow: Workflow, work: Work, resume: Resume | None, folder: Path
) -> AsyncGenerator[Event, Any]:
    answered: list[str] = []
    if resume is None:
        begin: dict[str, Any] = {"message": work.prompt}
    else:
        answered = resume.state["requests"]
        checkpoint = resume.state["checkpoint"]
        (folder / f"{checkpoint}.json").write_text(resume.state["content"], encoding="utf-8")
        begin = {"checkpoint_id": checkpoint, "responses": dict.fromkeys(answered, resume.answer)}
    storage = FileCheckpointStorage(folder)
    outputs: list[Any] = []
    requests: dict[str, Any] = {}
    async for event in workflow.run(**begin, stream=True, checkpoint_storage=storage):
        match event.type:
            case "output":
                outputs.append(event.data)
            case "request_info" if event.request_id not in answered:
                # Those answered just now are told again when the checkpoint is read.
                requests[event.request_id] = event.data
            case "failed":
                why = event.details
                reason = f"{why.error_type}: {why.message}" if why else "the workflow failed"
                yield Failed(reason=reason, code="exception", retryable=True)
                return
            case "executor_invoked":
                yield Progress(status=str(event.executor_id))
            case _:
                continue
    if not requests:
        yield Done(output=_said(outputs[-1]) if outputs else None)
        return
    latest = await storage.get_latest(workflow_name=workflow.name)
    if latest is None:
        yield Failed(reason="the workflow asked, and left no checkpoint", code="no_checkpoint")
        return
    content = (folder / f"{latest.checkpoint_id}.json").read_text(encoding="utf-8")
    state = {"requests": list(requests), "checkpoint": latest.checkpoint_id, "content": content}
    asked = [_said(data) for data in requests.values()]
    yield NeedHelp(question=text(asked[0] if len(asked) == 1 else asked), state=state)


def _said(output: Any) -> Any:
    """Return what an output says, where it is a message or a response."""
    words = getattr(output, "text", None)
    return words if isinstance(words, str) else output
