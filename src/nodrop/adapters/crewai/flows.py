"""Flows of CrewAI at work: a flow for every handoff, parked where it waits for feedback."""

import json
from collections.abc import AsyncGenerator
from typing import Any, NoReturn

from nodrop.adapters.port.events import Done, Event, NeedHelp, Resume, Work, text
from nodrop.adapters.port.installed import needs

with needs("crewai", "1.15.28", extra="crewai"):
    from crewai.events.utils.console_formatter import set_suppress_console_output
    from crewai.flow import Flow, HumanFeedbackPending, PendingFeedbackContext
    from crewai.flow.persistence import FlowPersistence
    from pydantic import BaseModel, Field


class Parking:
    """Has a flow parked for feedback: `@human_feedback(..., provider=Parking())`."""

    def request_feedback(
        self,
        context: PendingFeedbackContext,
        flow: Flow[Any],  # noqa: ARG002  # CrewAI's signature
    ) -> NoReturn:
        """Stop here until there is an answer."""
        raise HumanFeedbackPending(context=context)


class FlowDriver:
    """Runs flows of one class."""

    def __init__(self, flow: type[Flow[Any]]) -> None:
        self._flow = flow

    async def drive(self, work: Work, resume: Resume | None) -> AsyncGenerator[Event, Any]:
        """See `Driver`."""
        set_suppress_console_output(True)  # CrewAI's signature; for this task alone
        if resume is None:
            kept = CarriedState()
            flow = self._flow(persistence=kept, suppress_flow_events=True)
            made = await flow.kickoff_async(inputs=work.fields)
        else:
            kept = CarriedState(states=resume.state["states"], pending=resume.state["pending"])
            flow = self._flow.from_pending(resume.state["flow_id"], kept)
            made = await flow.resume_async(resume.text)
        if isinstance(made, HumanFeedbackPending):
            asked = made.context
            question = "\n".join([asked.message, text(asked.method_output)])
            state = {"flow_id": asked.flow_id, "states": kept.states, "pending": kept.pending}
            yield NeedHelp(question=question, state=state)
            return
        yield Done(output=made)


class CarriedState(FlowPersistence):
    """The state of one flow, carried by its handoff: nothing is left on this machine."""

    persistence_type: str = "nodrop"
    states: dict[str, dict[str, Any]] = Field(default_factory=dict)
    pending: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def init_db(self) -> None:
        """Nothing is to be prepared."""

    def save_state(
        self,
        flow_uuid: str,
        method_name: str,  # noqa: ARG002  # CrewAI's signature
        state_data: dict[str, Any] | BaseModel,
    ) -> None:
        """Keep the state after a method."""
        self.states[flow_uuid] = _plain(state_data)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the state as it was kept last."""
        return self.states.get(flow_uuid)

    def save_pending_feedback(
        self,
        flow_uuid: str,
        context: PendingFeedbackContext,
        state_data: dict[str, Any] | BaseModel,
    ) -> None:
        """Keep the state and what is waited for."""
        self.save_state(flow_uuid, context.method_name, state_data)
        self.pending[flow_uuid] = _plain(context.to_dict())

    def load_pending_feedback(
        self, flow_uuid: str
    ) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state and what is waited for."""
        waiting = self.pending.get(flow_uuid)
        if waiting is None:
            return None
        return self.states[flow_uuid], PendingFeedbackContext.from_dict(waiting)

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Feedback came."""
        self.pending.pop(flow_uuid, None)


def _plain(value: dict[str, Any] | BaseModel) -> dict[str, Any]:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return json.loads(text(value))
