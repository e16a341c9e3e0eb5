"""What can be asked next, with what an answer holds: the links of the OpenAPI document."""

from typing import Any, Final

from nodrop.protocol.operations import OPERATIONS
from nodrop.protocol.requests import OfDelivery

Link = dict[str, Any]

_HANDOFF: Final = "$response.body#/handoff"
_DELIVERY: Final = "$response.body#/deliveries/0"


def links(operation: str) -> dict[str, Link]:
    """Return what the answer to an operation leads to, by the name of the next one."""
    match operation:
        case "offer":
            chain = _link("trace", name=f"{_HANDOFF}/correlation_id")
            return {**_about(f"{_HANDOFF}/id"), "trace": chain}
        case "take":
            said = {"requestBody": {"attempt": f"{_DELIVERY}/attempt"}}
            return {
                name: _link(name, id=f"{_DELIVERY}/handoff/id") | said
                for name, next_ in OPERATIONS.items()
                if issubclass(next_.request, OfDelivery)
            }
        case "step":
            return {"get_step": _link("get_step", id="$request.path.id", name="$request.path.name")}
        case "register":
            then = ("get_agent", "remove_agent")
            return {name: _link(name, name="$request.path.name") for name in then}
        case "create_token":
            return {"revoke_token": _link("revoke_token", name="$response.body#/token_id")}
        case _:
            return {}


def _about(handoff: str) -> dict[str, Link]:
    return {
        name: _link(name, id=handoff)
        for name, operation in OPERATIONS.items()
        if operation.about_handoff and "{name}" not in operation.path
    }


def _link(operation: str, /, **parameters: str) -> Link:
    return {"operationId": operation, "parameters": parameters}
