"""Lists of tasks: latest change first, in pages, with A2A's own filters.

The store lists by age, A2A by change, so the newest few are looked at together.
"""

from typing import Final

from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import (
    ListTasksCursor,
    decode_list_tasks_cursor,
    encode_list_tasks_cursor,
    validate_history_length,
    validate_page_size,
)
from google.protobuf.timestamp_pb2 import Timestamp

from nodrop.servers.a2a import tasks
from nodrop.servers.a2a.calling.visit import View, Visit

LOOKED_AT_MAX: Final = 1_000
"""Handoffs among which a list is made: the newest of this caller at this agent."""
_PAGE: Final = 200


async def page(request: ListTasksRequest, visit: Visit) -> tuple[ListTasksResponse, list[View]]:
    """Return a page of tasks without their histories, and the handoffs they are."""
    _check_status(request, visit)
    since = _since(request)
    validate_history_length(request)
    size = DEFAULT_LIST_TASKS_PAGE_SIZE
    if request.HasField("page_size"):
        validate_page_size(request.page_size)
        size = request.page_size
    cursor = _cursor(request)
    found = [(_key(handoff), handoff) for handoff in await _matching(request, visit, since)]
    found.sort(key=lambda pair: pair[0].sort_key(), reverse=True)
    left = [p for p in found if cursor is None or p[0].sort_key() < cursor.sort_key()]
    shown = left[:size]
    more = encode_list_tasks_cursor(shown[-1][0]) if len(left) > size else ""
    handoffs = [handoff for _, handoff in shown]
    answer = ListTasksResponse(
        tasks=[_task(handoff, request) for handoff in handoffs],
        next_page_token=more,
        page_size=len(handoffs) if not shown else size,
        total_size=len(found),
    )
    return answer, handoffs


def _check_status(request: ListTasksRequest, visit: Visit) -> None:
    """Refuse a state that there is not, rather than list everything, or nothing."""
    known = dict(TaskState.items())
    numbers = {str(number) for number in known.values()}
    said = visit.listed is None or visit.listed in known or visit.listed in numbers
    if not said or request.status not in known.values():
        states = ", ".join(name for name, number in known.items() if number)
        raise InvalidParamsError(message=f"status: expected one of {states}")


def _since(request: ListTasksRequest) -> int | None:
    """Return the time after which a task must have changed, in nanoseconds."""
    if not request.HasField("status_timestamp_after"):
        return None
    try:
        return request.status_timestamp_after.ToNanoseconds()
    except ValueError:
        raise InvalidParamsError(message="status_timestamp_after: no such time") from None


async def _matching(request: ListTasksRequest, visit: Visit, since: int | None) -> list[View]:
    found: list[View] = []
    fields: dict[str, str | int] = {"limit": _PAGE}
    if visit.agent:
        fields["to"] = visit.agent
    if request.context_id:
        fields["correlation_id"] = request.context_id
    for _ in range(LOOKED_AT_MAX // _PAGE):
        answer = await visit.way.call("list_handoffs", fields)
        found += [h for h in answer["handoffs"] if _wanted(h, request, visit, since)]
        if not answer["handoffs"]:
            break
        fields["before"] = answer["before"]
    return found


def _wanted(handoff: View, request: ListTasksRequest, visit: Visit, since: int | None) -> bool:
    if not tasks.addressed_to(handoff, visit.agent):
        return False
    if request.status and tasks.STATES[handoff["state"]] != request.status:
        return False
    if since is None:
        return True
    return tasks.timestamp(tasks.changed_at(handoff)).ToNanoseconds() >= since


def _task(handoff: View, request: ListTasksRequest) -> Task:
    task = tasks.task(handoff)
    if not request.include_artifacts:
        task.ClearField("artifacts")
    return task


def _key(handoff: View) -> ListTasksCursor:
    changed: Timestamp = tasks.timestamp(tasks.changed_at(handoff))
    return ListTasksCursor(timestamp_ns=changed.ToNanoseconds(), task_id=handoff["id"])


def _cursor(request: ListTasksRequest) -> ListTasksCursor | None:
    if not request.page_token:
        return None
    cursor = decode_list_tasks_cursor(request.page_token)
    if cursor is None:
        raise InvalidParamsError(message="no such page token")
    return cursor
