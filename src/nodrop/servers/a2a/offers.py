"""Messages as offers: what a client of A2A says, in the words of a handoff."""

from typing import Any, Final

from a2a.types import SendMessageRequest
from a2a.utils.errors import ContentTypeNotSupportedError

from nodrop.model.errors import CapabilityRequiredError, InvalidRequestError, Problem
from nodrop.servers.a2a import extension, parts
from nodrop.servers.a2a.calling.visit import View, Visit
from nodrop.servers.a2a.cards import ANY_SKILL, INPUT_MODES

_TITLE_CHARS_MAX: Final = 120
_IDEMPOTENCY_KEY: Final = "idempotency-key"


def offer(
    request: SendMessageRequest,
    visit: Visit,
    *,
    manifest: View | None,
    headers: dict[str, str],
    activated: bool,
) -> View:
    """Return the offer that a message makes.

    Args:
        request: what was sent.
        visit: who sent it, and to whom.
        manifest: what the recipient says it can do; None at the front desk.
        headers: of the request, in lower case.
        activated: whether the client speaks our extension.
    """
    message = request.message
    _check_modes(request)
    terms = extension.terms(request)
    if terms.pop(extension.DECISION, None) is not None:
        raise _wrong(extension.DECISION, "there are no terms yet: this message begins a task")
    if activated and _IDEMPOTENCY_KEY in headers:
        # Opt-in: a message id alone says nothing, clients use the same one for different messages.
        terms.setdefault("idempotency_key", headers[_IDEMPOTENCY_KEY].strip('"'))
    if "traceparent" in headers:
        terms.setdefault("traceparent", headers["traceparent"])
    undeclared = manifest is not None and not manifest.get("capabilities")
    if undeclared and terms.get("capability") == ANY_SKILL:
        del terms["capability"]  # read in the card, where it means whatever there is
    meant = extension.meant(message.parts)
    payload, form = parts.payload(meant, typed=_typed(manifest, terms.get("capability")))
    texts = [part.text for part in meant if part.HasField("text")]
    if texts and (line := texts[0].strip().split("\n", 1)[0][:_TITLE_CHARS_MAX]):
        terms.setdefault("title", line)
    came: dict[str, Any] = {"message_id": message.message_id, "form": form, "agent": visit.agent}
    if others := extension.without(message):
        came["metadata"] = others
    if message.extensions:
        came["extensions"] = list(message.extensions)
    if message.reference_task_ids:
        came["reference_task_ids"] = list(message.reference_task_ids)
    made = {**terms, "payload": payload, "metadata": {"a2a": came}}
    if visit.agent:
        made["to"] = visit.agent
    elif "capability" not in terms:
        raise CapabilityRequiredError(
            "the relay's own address hands work to whoever offers a capability",
            next_step=f"Name it: metadata[{extension.URI!r}].capability.",
        )
    if message.context_id:
        made["correlation_id"] = message.context_id
    return made


def answer(request: SendMessageRequest, handoff: View) -> tuple[str, View]:
    """Return the command that a message means to a handoff that waits for one."""
    _check_modes(request)
    question = handoff["question"]
    decision = extension.terms(request).get(extension.DECISION)
    if question["kind"] == "terms":
        said = decision or parts.answer(request.message.parts)
        if said not in ("agree", "decline"):
            raise _wrong(extension.DECISION, "other terms are proposed: agree or decline")
        return str(said), {"seq": question["seq"]}
    if decision is not None:
        raise _wrong(extension.DECISION, "a question is open, and no other terms")
    return "answer", {"seq": question["seq"], "answer": parts.answer(request.message.parts)}


def _typed(manifest: View | None, capability: str | None) -> bool:
    """Whether the recipient takes an object of its own making."""
    declared = (manifest or {}).get("capabilities") or ()
    asked = [c for c in declared if capability in {None, c["name"]}]
    return len(asked) == 1 and asked[0].get("input_schema") is not None


def _check_modes(request: SendMessageRequest) -> None:
    for part in request.message.parts:
        if part.media_type and part.media_type.partition(";")[0].strip() not in INPUT_MODES:
            raise ContentTypeNotSupportedError(
                message=f"{part.media_type[:100]} is none of {', '.join(INPUT_MODES)}"
            )


def _wrong(field: str, message: str) -> InvalidRequestError:
    problem = Problem(path=f"metadata.{extension.URI}.{field}", message=message)
    return InvalidRequestError(message, errors=(problem,))
