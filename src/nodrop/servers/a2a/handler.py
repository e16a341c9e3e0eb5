"""The methods of A2A, carried out by a relay.

Nothing runs here: a message is an offer that is on disk before it is answered, and a task is told
from the log. Whether the agent is there makes no difference to any of it.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import (
    RequestHandler,
    validate_request_params,  # pyright: ignore[reportUnknownVariableType]  # the SDK's own hint is bare
)
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import apply_history_length, validate_history_length

from nodrop.model.errors import (
    AlreadyFinishedError,
    ForbiddenError,
    InvalidRequestError,
    NodropError,
    NotFoundError,
    Problem,
    RateLimitedError,
    UnauthenticatedError,
    WrongStateError,
)
from nodrop.model.limits import Limits
from nodrop.relay.relay import Caller
from nodrop.servers.a2a import events, extension, listing, offers, parts, refusals, tasks
from nodrop.servers.a2a.calling.visit import View, Visit
from nodrop.servers.a2a.events import Update
from nodrop.servers.a2a.following import Following
from nodrop.servers.a2a.publishing import Publishing
from nodrop.servers.a2a.pushing import Pushing
from nodrop.servers.a2a.refusals import refused, refused_stream

VISIT: Final = "nodrop.visit"
"""Where a call's context has the visit."""
BLOCKING_SECONDS_MAX: Final = 50
"""How long a message that is to be waited for waits; the task as it is then is the answer."""
_HISTORY_ENTRIES_MAX: Final = 500
_BEYOND: Final = frozenset(
    {"then", "escalation", "watchers", "parent_id", "detached", "group", "supersedes"}
)
"""Terms that hand work or news to others than the recipient."""
_ANOTHER: Final = "Begin another task, with this one as a reference."

Event = Message | Task | Update


class Handler(RequestHandler):
    """What clients of A2A may ask of the agents of a relay."""

    def __init__(
        self,
        *,
        following: Following,
        publishing: Publishing,
        pushing: Pushing,
        limits: Limits,
        refuse: Callable[[Caller, str, NodropError], None],
    ) -> None:
        """Carry out what is asked.

        Args:
            following: tells of handoffs as they change.
            publishing: knows the agents.
            pushing: pushes.
            limits: the relay's.
            refuse: puts a refusal into the security log.
        """
        self._following = following
        self._publishing = publishing
        self._pushing = pushing
        self._limits = limits
        self._refuse = refuse
        self._anonymous_waits = 0

    # --- messages ---

    @validate_request_params
    @refused
    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Task | Message:
        """Hand the message over; wait for an outcome or a question, unless asked not to."""
        visit = visit_of(context)
        if params.configuration.return_immediately:
            handoff = await self._accept(params, context)
        else:
            with self._waiting(visit):
                handoff = await self._halted(visit, await self._accept(params, context))
            said = parts.message(tasks.result(handoff), handoff["id"])
            if said is not None:
                await self._settle(visit, handoff)
                said.context_id = handoff["correlation_id"]
                return said
        return await self._shown(visit, handoff, params.configuration)

    @validate_request_params
    @refused_stream
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Hand the message over, and tell what becomes of it."""
        visit = visit_of(context)
        with self._waiting(visit):
            handoff = await self._accept(params, context)
            async for event in self._told(visit, handoff, params.configuration):
                yield event

    async def _accept(self, params: SendMessageRequest, context: ServerCallContext) -> View:
        """Return the handoff that a message made, or went to, once that is on disk."""
        validate_history_length(params.configuration)
        visit, message = visit_of(context), params.message
        hook = None
        if params.configuration.HasField("task_push_notification_config"):
            _require_token(visit)
            hook = params.configuration.task_push_notification_config
            await self._pushing.check(hook)
        if message.task_id:
            handoff = await self._go_on(params, visit)
        else:
            manifest = await self._publishing.manifest(visit)
            fields = offers.offer(
                params,
                visit,
                manifest=manifest,
                headers=context.state.get("headers", {}),
                activated=extension.URI in context.requested_extensions,
            )
            if visit.anonymous:
                self._check_modest(visit, fields)
            handoff = (await visit.way.call("offer", fields))["handoff"]
        if hook is not None:
            await self._pushing.add(visit, handoff, hook, from_now=False)
        return handoff

    def _check_modest(self, visit: Visit, fields: View) -> None:
        """Refuse terms of a caller without a token that reach beyond the agent it was let in to."""
        if beyond := sorted(_BEYOND & fields.keys()):
            error = ForbiddenError(
                f"{', '.join(beyond)}: without a token, work goes to this agent alone",
                next_step="Leave it out, or ask an operator of the team for a token.",
            )
            self._refuse(visit.caller, "a2a", error)
            raise error
        if (key := fields.get("idempotency_key")) is not None:
            self._check_unguessable("idempotency_key", str(key))

    def _check_unguessable(self, field: str, name: str) -> None:
        """Refuse a short name: callers without a token share one identity, and must not collide."""
        fewest = self._limits.anonymous_name_chars_min
        if len(name) < fewest:
            message = f"without a token, at least {fewest} characters that nobody guesses"
            problem = Problem(path=field, message=message)
            raise InvalidRequestError(
                f"{field}: {message}", next_step="Use a UUID.", errors=(problem,)
            )

    @contextmanager
    def _waiting(self, visit: Visit) -> Generator[None]:
        """Count a caller without a token while it waits; refuse one too many."""
        if not visit.anonymous:
            yield
            return
        if self._anonymous_waits >= self._limits.anonymous_waits_max:
            raise RateLimitedError(
                "too many callers without a token wait already",
                next_step="Return immediately, and get the task later.",
            )
        self._anonymous_waits += 1
        try:
            yield
        finally:
            self._anonymous_waits -= 1

    async def _go_on(self, params: SendMessageRequest, visit: Visit) -> View:
        message = params.message
        handoff = await self._find(visit, message.task_id)
        if message.context_id and message.context_id != handoff["correlation_id"]:
            raise InvalidParamsError(message="the task belongs to another context")
        if handoff["question"] is None:
            if handoff["outcome"]:
                raise AlreadyFinishedError(f"the task is {handoff['state']}", next_step=_ANOTHER)
            raise WrongStateError("the task waits for no message", next_step=_ANOTHER)
        operation, fields = offers.answer(params, handoff)
        return (await visit.way.call(operation, fields, handoff=handoff["id"]))["handoff"]

    async def _halted(self, visit: Visit, handoff: View) -> View:
        """Return a handoff when it has an outcome or a question, or as it is when the wait is over."""
        asked = {"wait": BLOCKING_SECONDS_MAX, "until": "blocked"}
        waiting = visit.way.call("get_handoff", asked, handoff=handoff["id"])
        answer = await self._following.unless_closing(waiting)
        if (
            answer is None or answer["handoff"]["id"] != handoff["id"]
        ):  # a successor's is another task
            return await self._find(visit, handoff["id"])
        return answer["handoff"]

    # --- tasks ---

    @validate_request_params
    @refused
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """Return a task as it is."""
        validate_history_length(params)
        visit = visit_of(context)
        return await self._shown(visit, await self._find(visit, params.id), params)

    @validate_request_params
    @refused
    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        """Return the caller's tasks at this agent, latest change first."""
        visit = visit_of(context)
        if visit.anonymous and not params.context_id:
            raise UnauthenticatedError("without a token, only the tasks of one context are listed")
        if visit.anonymous:
            self._check_unguessable("context_id", params.context_id)
        page, handoffs = await listing.page(params, visit)
        if params.history_length > 0:
            for task, handoff in zip(page.tasks, handoffs, strict=True):
                task.history.extend(await self._history(visit, handoff))
                task.CopyFrom(apply_history_length(task, params))
        return page

    @validate_request_params
    @refused
    async def on_cancel_task(
        self, params: CancelTaskRequest, context: ServerCallContext
    ) -> Task | None:
        """Withdraw a task."""
        visit = visit_of(context)
        try:
            handoff = await self._find(visit, params.id)
            fields = {"reason": "cancelled over A2A"}
            done = await visit.way.call("cancel", fields, handoff=handoff["id"])
            return await self._shown(visit, done["handoff"], None)
        except NodropError as refusal:
            raise refusals.cancelling(refusal) from refusal

    @validate_request_params
    @refused_stream
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Tell what becomes of a task from here on."""
        visit = visit_of(context)
        handoff = await self._find(visit, params.id)
        if handoff["outcome"] is not None:
            raise AlreadyFinishedError("the task has ended", next_step="Get it instead.")
        with self._waiting(visit):
            async for event in self._told(visit, handoff, None):
                yield event

    async def _told(self, visit: Visit, handoff: View, wanted: Any) -> AsyncGenerator[Event]:
        """Tell a task as it is, then every change, until it has ended or waits for an answer."""
        yield await self._shown(visit, handoff, wanted)
        if handoff["outcome"] is not None:
            return
        entries = self._following.entries(visit.way, handoff["id"])
        try:
            async for entry in entries:
                if entry["version"] is None or entry["version"] <= handoff["version"]:
                    continue
                for update in events.updates(entry, handoff):
                    yield update
                state = events.state_after(entry)
                if state in tasks.TERMINAL:
                    await self._settle(visit, handoff)
                if state in tasks.TERMINAL | tasks.INTERRUPTED:
                    return
        finally:
            await entries.aclose()

    async def _find(self, visit: Visit, task_id: str) -> View:
        """Return a task of this agent that the caller may see; others cannot be told from none."""
        try:
            answer = await visit.way.call("get_handoff", {}, handoff=task_id)
        except UnauthenticatedError:
            raise
        except NodropError as refusal:
            if refusal.retryable:
                raise
            raise NotFoundError("Task not found") from refusal
        handoff: View = answer["handoff"]
        # An id, whole: the short forms that people may use could fit another one tomorrow.
        if handoff["id"] != task_id or not tasks.addressed_to(handoff, visit.agent):
            raise NotFoundError("Task not found")
        return handoff

    async def _shown(self, visit: Visit, handoff: View, wanted: Any) -> Task:
        """Return a handoff as a task, with as much of its history as is wanted."""
        limited = wanted if wanted is not None and wanted.HasField("history_length") else None
        told: list[Message] = []
        if limited is None or limited.history_length > 0:
            told = await self._history(visit, handoff)
        if handoff["outcome"] is not None:
            await self._settle(visit, handoff)
        task = tasks.task(handoff, history=told)
        return apply_history_length(task, limited)

    async def _history(self, visit: Visit, handoff: View) -> list[Message]:
        fields = {"handoff_id": handoff["id"], "limit": _HISTORY_ENTRIES_MAX}
        entries = (await visit.way.call("log", fields))["entries"]
        return events.history([e for e in entries if e["version"] is not None], handoff)

    async def _settle(self, visit: Visit, handoff: View) -> None:
        """Settle what has ended: its requester is being told, and may ask again for ever."""
        if visit.caller.agent != handoff["chain"]["origin"] or handoff["settled_at"] is not None:
            return
        try:
            await visit.way.call("settle", {"brief": True}, handoff=handoff["id"])
        except NodropError:
            return  # it was settled meanwhile, or will be when it is asked for again

    # --- push notifications ---

    @validate_request_params
    @refused
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Push what becomes of a task from here on."""
        visit = visit_of(context)
        _require_token(visit)
        handoff = await self._find(visit, params.task_id)
        await self._pushing.check(params)
        return await self._pushing.add(visit, handoff, params, from_now=True)

    @validate_request_params
    @refused
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Return where a task is pushed to."""
        visit = visit_of(context)
        _require_token(visit)
        handoff = await self._find(visit, params.task_id)
        return await self._pushing.get(visit, handoff, params.id)

    @validate_request_params
    @refused
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """Return every place that a task is pushed to."""
        visit = visit_of(context)
        _require_token(visit)
        handoff = await self._find(visit, params.task_id)
        return ListTaskPushNotificationConfigsResponse(
            configs=await self._pushing.all(visit, handoff)
        )

    @validate_request_params
    @refused
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Push a task no more to some place. It need not have been."""
        visit = visit_of(context)
        _require_token(visit)
        handoff = await self._find(visit, params.task_id)
        await self._pushing.drop(visit, handoff, params.id)

    # --- the card ---

    @validate_request_params
    @refused
    async def on_get_extended_agent_card(
        self,
        params: GetExtendedAgentCardRequest,  # noqa: ARG002  # says nothing that the visit does not
        context: ServerCallContext,
    ) -> AgentCard:
        """Return the card that whoever may hand the agent work sees."""
        return await self._publishing.extended(visit_of(context))


def _require_token(visit: Visit) -> None:
    """Refuse a caller without a token: the relay calls no address that nobody answers for."""
    if visit.anonymous:
        raise UnauthenticatedError(
            "without a token nothing is pushed", next_step="Subscribe to the task, or get it."
        )


def visit_of(context: ServerCallContext) -> Visit:
    """Return the visit that a call is part of."""
    visit = context.state[VISIT]
    assert isinstance(visit, Visit), "the context builder puts nothing else there"
    return visit
