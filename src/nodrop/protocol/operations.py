"""Every operation by name: one table that the doors, the client and the OpenAPI document read.

An operation is asked for as `METHOD path` over HTTP, by its name (or its path) over WebSocket, and
by its name in-process. `{id}` in a path names a handoff and `{name}` a step or an agent.
"""

import functools
from typing import Final, Literal

import msgspec

from nodrop.protocol import requests as r
from nodrop.protocol.coordination import outlet_requests as outlets
from nodrop.protocol.coordination import talk_requests as talk
from nodrop.protocol.coordination import trigger_requests as triggers

Method = Literal["GET", "POST", "PUT", "DELETE"]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked of a relay."""

    name: str
    method: Method
    path: str
    """Below `/v1/`."""
    request: type[r.Request]
    answer: str
    """The shape of the answer; `protocol.views` has one struct for each."""
    status: int = 200
    open: bool = False
    """Whether it may be asked for without a bearer token."""

    @property
    def about_handoff(self) -> bool:
        """Whether the path names a handoff."""
        return "{id}" in self.path

    @property
    def changes(self) -> bool:
        """Whether it may change something."""
        return self.method != "GET"


@functools.cache
def kind_of(read_as: type[r.Request]) -> type[r.Request]:
    """Return the request of the table that a struct is, whatever fields of a frame it has besides."""
    kinds = {operation.request for operation in OPERATIONS.values()}
    return next(kind for kind in read_as.__mro__ if kind in kinds)


def _of(name: str, request: type[r.Request], *, path: str | None = None) -> Operation:
    path = path or f"handoffs/{{id}}/{name}"
    return Operation(name=name, method="POST", path=path, request=request, answer="handoff")


def _get(name: str, path: str, request: type[r.Request], answer: str) -> Operation:
    return Operation(name=name, method="GET", path=path, request=request, answer=answer)


_TABLE: Final = (
    Operation(
        name="offer",
        method="POST",
        path="handoffs",
        request=r.Offer,
        answer="handoff",
        status=201,
    ),
    Operation(name="take", method="POST", path="inbox/take", request=r.Take, answer="deliveries"),
    Operation(
        name="heartbeat", method="POST", path="heartbeat", request=r.Heartbeat, answer="held"
    ),
    _of("ack", r.Ack),
    _of("reject", r.Reject),
    _of("counter", r.Counter),
    _of("update", r.Update),
    _of("block", r.Block),
    _of("answer", r.Answer),
    _of("agree", r.Agree),
    _of("decline", r.Decline),
    _of("complete", r.Complete),
    _of("fail", r.Fail),
    _of("release", r.Release),
    _of("cancel", r.Cancel),
    _of("reassign", r.Reassign),
    _of("settle", r.Settle),
    _of("checkpoint", r.Checkpoint),
    Operation(
        name="step",
        method="PUT",
        path="handoffs/{id}/steps/{name}",
        request=r.Step,
        answer="step",
    ),
    _get("get_step", "handoffs/{id}/steps/{name}", r.GetStep, "step"),
    _of("dismiss", r.Dismiss),
    _of("note", r.Note, path="handoffs/{id}/notes"),
    Operation(
        name="note_team", method="POST", path="notes", request=r.Note, answer="noted", status=201
    ),
    _of("redrive", r.Redrive, path="dead-letters/{id}/redrive"),
    _of("discard", r.Discard, path="dead-letters/{id}/discard"),
    _of("accept", r.AcceptLate, path="dead-letters/{id}/accept"),
    _of("erase", r.Erase),
    _get("get_handoff", "handoffs/{id}", r.GetHandoff, "handoff"),
    _get("list_handoffs", "handoffs", r.ListHandoffs, "handoffs"),
    _get("inbox", "inbox", r.GetInbox, "inbox"),
    _get("log", "log", r.GetLog, "log"),
    _get("trace", "trace/{name}", r.GetTrace, "trace"),
    Operation(
        name="offer_group",
        method="POST",
        path="groups",
        request=r.OfferGroup,
        answer="group",
        status=201,
    ),
    _get("get_group", "groups/{name}", r.GetGroup, "group"),
    # Events and triggers.
    Operation(
        name="emit",
        method="POST",
        path="events",
        request=triggers.Emit,
        answer="emitted",
        status=201,
    ),
    _get("triggers", "triggers", triggers.ListTriggers, "triggers"),
    Operation(
        name="put_trigger",
        method="PUT",
        path="triggers/{name}",
        request=triggers.PutTrigger,
        answer="trigger",
    ),
    Operation(
        name="remove_trigger",
        method="DELETE",
        path="triggers/{name}",
        request=triggers.RemoveTrigger,
        answer="trigger",
    ),
    Operation(
        name="test_trigger",
        method="POST",
        path="triggers/test",
        request=triggers.TestTrigger,
        answer="trials",
    ),
    # Outlets.
    _get("outlets", "outlets", outlets.ListOutlets, "outlets"),
    Operation(
        name="put_outlet",
        method="PUT",
        path="outlets/{name}",
        request=outlets.PutOutlet,
        answer="outlet",
    ),
    Operation(
        name="remove_outlet",
        method="DELETE",
        path="outlets/{name}",
        request=outlets.RemoveOutlet,
        answer="outlet",
    ),
    # Talk.
    Operation(
        name="say", method="POST", path="messages", request=talk.Say, answer="said", status=201
    ),
    _get("messages", "messages", talk.ListMessages, "messages"),
    Operation(
        name="tell_status",
        method="POST",
        path="statuses",
        request=talk.TellStatus,
        answer="said",
        status=201,
    ),
    _get("topics", "topics", talk.ListTopics, "topics"),
    Operation(
        name="subscribe_topic",
        method="PUT",
        path="topics/{name}",
        request=talk.SubscribeTopic,
        answer="topic",
    ),
    Operation(
        name="unsubscribe_topic",
        method="DELETE",
        path="topics/{name}",
        request=talk.UnsubscribeTopic,
        answer="topic",
    ),
    _get("dead_letters", "dead-letters", r.ListDeadLetters, "handoffs"),
    _get("agents", "agents", r.ListAgents, "agents"),
    _get("get_agent", "agents/{name}", r.GetAgent, "agent"),
    Operation(
        name="contract", method="POST", path="contracts", request=r.Contract, answer="contract"
    ),
    Operation(
        name="register", method="PUT", path="agents/{name}", request=r.Register, answer="agent"
    ),
    Operation(
        name="remove_agent",
        method="DELETE",
        path="agents/{name}",
        request=r.RemoveAgent,
        answer="agent",
    ),
    Operation(
        name="create_token",
        method="POST",
        path="tokens",
        request=r.CreateToken,
        answer="token",
        status=201,
    ),
    _get("list_tokens", "tokens", r.ListTokens, "tokens"),
    Operation(
        name="revoke_token",
        method="DELETE",
        path="tokens/{name}",
        request=r.RevokeToken,
        answer="token",
    ),
    _get("refusals", "refusals", r.ListRefusals, "refusals"),
    _get("checkpoints", "checkpoints", r.GetCheckpoint, "checkpoint"),
    Operation(
        name="backup",
        method="POST",
        path="backups",
        request=r.Backup,
        answer="backup",
        status=201,
    ),
    # Keys, joining, policy.
    Operation(
        name="create_invitation",
        method="POST",
        path="invitations",
        request=r.CreateInvitation,
        answer="invitation",
        status=201,
    ),
    _get("list_invitations", "invitations", r.ListInvitations, "invitations"),
    Operation(
        name="revoke_invitation",
        method="DELETE",
        path="invitations/{name}",
        request=r.RevokeInvitation,
        answer="invitation",
    ),
    Operation(name="join", method="POST", path="join", request=r.Join, answer="key", status=201),
    Operation(
        name="create_link",
        method="POST",
        path="links",
        request=r.CreateLink,
        answer="link",
        status=201,
    ),
    Operation(
        name="redeem_link",
        method="POST",
        path="links/redeem",
        request=r.RedeemLink,
        answer="signed_in",
        open=True,
    ),
    Operation(
        name="add_key", method="POST", path="keys", request=r.AddKey, answer="key", status=201
    ),
    _get("keys", "keys", r.ListKeys, "keys"),
    Operation(
        name="revoke_key", method="DELETE", path="keys/{name}", request=r.RevokeKey, answer="key"
    ),
    _get("whoami", "me", r.WhoAmI, "whoami"),
    _get("get_policy", "policy", r.GetPolicy, "policy"),
    Operation(name="set_policy", method="PUT", path="policy", request=r.SetPolicy, answer="policy"),
    # Beyond the team.
    _get("get_reach", "agents/{name}/reach", r.GetReach, "reach"),
    Operation(
        name="set_reach",
        method="PUT",
        path="agents/{name}/reach",
        request=r.SetReach,
        answer="reach",
    ),
)

OPERATIONS: Final[dict[str, Operation]] = {operation.name: operation for operation in _TABLE}
