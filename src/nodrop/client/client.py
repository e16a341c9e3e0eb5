"""A requester: hands work off, follows it, reads inbox and log. The same over every transport."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.client import cursor
from nodrop.client.cursor import Cursor
from nodrop.client.dead_letter import DeadLetter
from nodrop.client.durations import Due, Duration, Wait, spelled, spelled_if
from nodrop.client.group import Answers, Group
from nodrop.client.handoff import Handoff
from nodrop.client.inbox import Inbox, Item
from nodrop.client.shown import AgentShown, Contract, Entry, KeyShown
from nodrop.client.talk import Message, Said
from nodrop.client.trace import Trace
from nodrop.client.tracing import current_traceparent
from nodrop.client.transports.calls import Calls
from nodrop.client.values import fields_of, given, listed, plain, require
from nodrop.client.working.hints import shape
from nodrop.model.errors import CursorUnknownError
from nodrop.protocol.decoding import encode_strict

FOLLOW_WAIT_SECONDS: Final = 30.0
"""How long one request of `follow_log` waits for the next entry."""
FLUSH_SECONDS_MAX: Final = 5.0
"""How long closing waits for the relay to hear of what is settled; it asks again otherwise."""

_LOG: Final = logging.getLogger("nodrop.client")


class Client(Calls):
    """One agent's connection to a relay. `nodrop.connect` makes it."""

    async def hand_off(  # noqa: PLR0915  # two statements for each of its many fields
        self,
        to: str | None = None,
        *,
        capability: str | None = None,
        trigger: str | None = None,
        title: str | None = None,
        payload: Any = None,
        priority: str | None = None,
        expected_outcome: str | None = None,
        accept_within: Duration | None = None,
        update_every: Duration | None = None,
        deadline: Due | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109  # a term of the handoff, not of this call
        attempts_max: int | None = None,
        contract: Contract | None = None,
        backoff: Mapping[str, Any] | None = None,
        escalation: Sequence[Mapping[str, Any]] | None = None,
        then: Sequence[Mapping[str, Any]] | None = None,
        watchers: Iterable[str] | None = None,
        correlation_id: str | None = None,
        parent_id: str | None = None,
        idempotency_key: str | None = None,
        traceparent: str | None = None,
        observations: Sequence[Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        covariates: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        from_: str | None = None,
    ) -> Handoff:
        """Hand a piece of work to another agent; when this returns, it is stored.

        Name a recipient, a capability, or both. Only what is given is sent; for the rest the
        relay's defaults hold. `payload` may be any JSON value, dataclass, msgspec struct or
        pydantic model. The same `idempotency_key` again gives the same handoff. With a `contract`
        the offer is on its terms, and refused if the recipient's manifest is another by now.

        Raises:
            NodropError: the relay refused it; `code` says why, `next_step` what to do.
        """
        fields: dict[str, Any] = {}
        if to is not None:
            fields["to"] = to
        if capability is not None:
            fields["capability"] = capability
        if trigger is not None:
            fields["trigger"] = trigger
        if title is not None:
            fields["title"] = title
        if payload is not None:
            fields["payload"] = plain(payload, "payload")
        if priority is not None:
            fields["priority"] = priority
        if expected_outcome is not None:
            fields["expected_outcome"] = expected_outcome
        if accept_within is not None:
            fields["accept_within"] = spelled(accept_within)
        if update_every is not None:
            fields["update_every"] = spelled(update_every)
        if deadline is not None:
            fields["deadline"] = spelled(deadline)
        if timeout is not None:
            fields["timeout"] = spelled(timeout)
        if attempts_max is not None:
            fields["attempts_max"] = attempts_max
        if backoff is not None:
            fields["backoff"] = plain(backoff, "backoff")
        if escalation is not None:
            fields["escalation"] = plain(escalation, "escalation")
        if then is not None:
            fields["then"] = plain(then, "then")
        if watchers is not None:
            fields["watchers"] = listed(watchers, "watchers")
        if correlation_id is not None:
            fields["correlation_id"] = correlation_id
        if parent_id is not None:
            fields["parent_id"] = parent_id
        if idempotency_key is not None:
            fields["idempotency_key"] = idempotency_key
        traceparent = traceparent or current_traceparent()
        if traceparent is not None:
            fields["traceparent"] = traceparent
        if observations is not None:
            fields["observations"] = plain(observations, "observations")
        if parameters is not None:
            fields["parameters"] = plain(parameters, "parameters")
        if covariates is not None:
            fields["covariates"] = plain(covariates, "covariates")
        if metadata is not None:
            fields["metadata"] = plain(metadata, "metadata")
        if from_ is not None:
            fields["from"] = from_
        if contract is not None:
            require("contract", contract, Contract, "what `contract` returned")
            fields = {**contract.terms, **fields}
        handoff = Handoff.made(await self._offer(fields), fields, self)
        return await handoff.refresh() if handoff.had_ended else handoff

    async def handoff(self, ref: str) -> Handoff:
        """Look up a handoff by its id, a unique prefix of it, or `sender/idempotency_key`."""
        return Handoff(await self.about(ref, "get_handoff"), self)

    async def inbox(
        self,
        after: int = 0,
        wait: Duration | None = None,
        *,
        everything: bool = False,
        each: bool = False,
    ) -> Inbox:
        """Return what waits for this agent, beginning after the cursor.

        With `wait`, an empty inbox is waited on. `everything` also shows what waits no longer. Notices
        of one cause are gathered into one item, unless `each` or `everything` is true. Where the relay's
        log has no such place any more, it begins at 0 and says so in the program's log.
        """
        left = Wait(wait if wait is not None else 0)
        while True:
            fields = {**cursor.fields_of(after), "wait": left.piece(), "all": everything}
            if each:
                fields["each"] = True
            try:
                answer = await self.call("inbox", fields)
            except CursorUnknownError as error:
                _LOG.warning("reading the inbox from its beginning: %s", error)
                after = 0
                continue
            seen, after = after, Cursor.of(answer)
            # A page may hold nothing that still waits, and the next one something.
            if answer["items"] or (after == seen and left.over):
                items = [Item(view, self) for view in answer["items"]]
                return Inbox(items, after=after)

    async def log(
        self,
        after: int = 0,
        *,
        wait: Duration | None = None,
        limit: int | None = None,
        handoff_id: str | None = None,
        correlation_id: str | None = None,
        actor: str | None = None,
        type: str | None = None,  # noqa: A002  # the field's name in the log
        since: Due | None = None,
        until: Due | None = None,
        text: str | None = None,
    ) -> list[Entry]:
        """Return a page of the team's log, beginning after the cursor (`cursor` of the last entry seen).

        `since` and `until` are times, or how long ago; `text` is looked for in what may be seen.
        """
        fields = cursor.fields_of(after) | given(
            wait=spelled_if(wait),
            limit=limit,
            handoff_id=handoff_id,
            correlation_id=correlation_id,
            actor=actor,
            type=type,
            since=spelled_if(since),
            until=spelled_if(until),
            text=text,
        )
        answer = await self.call("log", fields)
        return msgspec.convert(answer["entries"], list[Entry])

    async def follow_log(
        self,
        after: int = 0,
        *,
        handoff_id: str | None = None,
        correlation_id: str | None = None,
        actor: str | None = None,
        type: str | None = None,  # noqa: A002  # the field's name in the log
    ) -> AsyncGenerator[Entry]:
        """Yield the entries after the cursor, and then each new one as it is committed.

        Where the relay's database was restored from an older copy, and the log has another entry at
        the cursor or none, it begins at 0 again and says so in the program's log.
        """
        chosen = given(handoff_id=handoff_id, correlation_id=correlation_id, actor=actor, type=type)
        while True:
            fields = {**cursor.fields_of(after), "wait": FOLLOW_WAIT_SECONDS, **chosen}
            try:
                answer = await self.call("log", fields)
            except CursorUnknownError as error:
                _LOG.warning("following the log from its beginning: %s", error)
                after = 0
                continue
            for entry in msgspec.convert(answer["entries"], list[Entry]):
                yield entry
            # The cursor passes over entries that a filter left out.
            after = Cursor.of(answer)

    async def note(self, text: str, handoff: str | None = None) -> int | None:
        """Write a remark into the log, about a handoff or about nothing in particular.

        Returns where in the log a note about no handoff stands.
        """
        if handoff is not None:
            await self.call("note", {"text": text}, handoff=handoff)
            return None
        answer = await self.call("note_team", {"text": text})
        return answer["seq"]

    # --- talk ---

    async def say(
        self,
        text: str,
        to: str | None = None,
        *,
        thread: str | None = None,
        about: str | None = None,
        supersedes: int | None = None,
        composed_at: str | None = None,
    ) -> Said:
        """Say something, informally: to an agent, in a thread, or to whom a handoff concerns."""
        fields = given(
            text=text,
            to=to,
            thread=thread,
            about=about,
            supersedes=supersedes,
            composed_at=composed_at,
        )
        return msgspec.convert(await self.call("say", fields), Said)

    async def status(
        self,
        status: str,
        text: str | None = None,
        *,
        about: str | None = None,
        topic: str | None = None,
        supersedes: int | None = None,
        composed_at: str | None = None,
    ) -> Said:
        """Tell everybody who needs to know: working, stuck, need_help, done, or free words.

        With `about`, that is the handoff's requester, its chain and its watchers; with `topic`, its
        subscribers. Who subscribes to this agent's name hears of it in any case.
        """
        fields = given(
            status=status,
            text=text,
            about=about,
            topic=topic,
            supersedes=supersedes,
            composed_at=composed_at,
        )
        return msgspec.convert(await self.call("tell_status", fields), Said)

    async def emit(
        self,
        type: str,  # noqa: A002  # the field's name in the log
        data: Any = None,
        *,
        event_id: str | None = None,
        source: str | None = None,
    ) -> list[str]:
        """Tell of an event; return the handoffs that rules have made of it, now or before.

        The same `event_id` again is the same event, whoever tells of it.
        """
        fields = given(type=type, event_id=event_id, source=source)
        answer = await self.call("emit", {**fields, "data": plain(data, "data")})
        return [fired["handoff_id"] for fired in answer["fired"] if "handoff_id" in fired]

    async def messages(
        self,
        after: int = 0,
        *,
        thread: str | None = None,
        topic: str | None = None,
        from_: str | None = None,
        limit: int | None = None,
    ) -> list[Message]:
        """Return what was said to or by this agent, and every status, oldest first."""
        fields = cursor.fields_of(after) | given(thread=thread, topic=topic, limit=limit)
        if from_ is not None:
            fields["from"] = from_
        answer = await self.call("messages", fields)
        return msgspec.convert(answer["messages"], list[Message])

    async def subscribe(self, topic: str) -> None:
        """Hear of a topic, or of everything an agent tells."""
        await self.call("subscribe_topic", name=topic)

    async def unsubscribe(self, topic: str) -> None:
        """Hear no more of a topic."""
        await self.call("unsubscribe_topic", name=topic)

    # --- looking ---

    async def handoffs(
        self,
        *,
        state: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        correlation_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
    ) -> list[Handoff]:
        """Return the handoffs this agent is a party to, newest first."""
        fields = given(
            state=state, to=to, correlation_id=correlation_id, before=before, limit=limit
        )
        if from_ is not None:
            fields["from"] = from_
        answer = await self.call("list_handoffs", fields)
        return [Handoff(view, self) for view in answer["handoffs"]]

    async def dead_letters(self, *, limit: int | None = None) -> list[DeadLetter]:
        """Return what ended without success and waits for a decision."""
        answer = await self.call("dead_letters", given(limit=limit))
        return [DeadLetter(view, self) for view in answer["handoffs"]]

    async def trace(self, correlation_id: str) -> Trace:
        """Return every handoff of a chain, oldest first, and where it broke."""
        return Trace(await self.call("trace", name=correlation_id), self)

    async def fan_out(
        self,
        offers: Mapping[str, Mapping[str, Any]],
        *,
        join: str = "all",
        quorum: int | None = None,
        wait: Duration | None = None,
        deadline: Due | None = None,
        title: str | None = None,
        then: Sequence[Mapping[str, Any]] | None = None,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answers:
        """Hand several pieces of work off together, all or none, and wait until they are joined.

        `offers` are by labels of the caller's own, which the answers come back under. `join` is
        `all`, `any`, or `quorum` with how many. Whoever is not needed any more is called off.

        Raises:
            WaitElapsed: they are not joined yet, and the work goes on.
        """
        group = await self.offer_group(
            offers,
            join=join,
            quorum=quorum,
            deadline=deadline,
            title=title,
            then=then,
            correlation_id=correlation_id,
            idempotency_key=idempotency_key,
        )
        return await group.answers(wait)

    async def offer_group(
        self,
        offers: Mapping[str, Mapping[str, Any]],
        *,
        join: str = "all",
        quorum: int | None = None,
        deadline: Due | None = None,
        title: str | None = None,
        then: Sequence[Mapping[str, Any]] | None = None,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Group:
        """Hand several pieces of work off together; when this returns, all of them are stored."""
        fields = given(
            join=join,
            quorum=quorum,
            deadline=spelled_if(deadline),
            title=title,
            then=plain(then, "then"),
            correlation_id=correlation_id,
            idempotency_key=idempotency_key,
            traceparent=current_traceparent(),
        )
        require("offers", offers, Mapping, "offers by labels of your own")
        fields["offers"] = {
            label: fields_of(offer, f"offers.{label}") for label, offer in offers.items()
        }
        answer = await self.call("offer_group", fields)
        return Group(answer["group"], self)

    async def group(self, ref: str) -> Group:
        """Look up a group by its id, or `sender/idempotency_key`."""
        answer = await self.call("get_group", name=ref)
        return Group(answer["group"], self)

    async def agents(self) -> list[AgentShown]:
        """Return the agents of the team, by name."""
        found: list[AgentShown] = []
        after: str | None = None
        while True:
            answer = await self.call("agents", given(after=after))
            found += msgspec.convert(answer["agents"], list[AgentShown])
            after = answer.get("after")
            if after is None:
                return found

    async def find(
        self,
        capability: str | None = None,
        *,
        tags: Iterable[str] = (),
        input: Any = None,  # noqa: A002  # the field's name in the protocol
        output: Any = None,
        timeout: Duration | None = None,  # noqa: ASYNC109  # a term of the handoff, not of this call
        reliability: float | None = None,
        available: bool = False,
        limit: int | None = None,
    ) -> list[AgentShown]:
        """Return the agents that can do something, the best first by what the relay measured.

        Args:
            capability: what they must offer.
            tags: words they must be tagged with, all of them.
            input: the shape of what you would send: names and short types, a JSON Schema, or a type.
            output: the shape of what you need to get, likewise.
            timeout: the longest an attempt may say it takes.
            reliability: the least share of completed handoffs, as measured.
            available: only who is there now.
            limit: at most so many.
        """
        fields = given(
            capability=capability,
            tags=",".join(listed(tags, "tags")) or None,
            input=_text(shape(input, mode="serialization")),
            output=_text(shape(output, mode="validation")),
            timeout=spelled_if(timeout),
            reliability=reliability,
            available=available or None,
            limit=limit,
        )
        answer = await self.call("agents", fields)
        return msgspec.convert(answer["agents"], list[AgentShown])

    async def contract(
        self,
        capability: str,
        *,
        to: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109  # a term of the handoff, not of this call
        deadline: Due | None = None,
        update_every: Duration | None = None,
        accept_within: Duration | None = None,
        attempts_max: int | None = None,
        input: Any = None,  # noqa: A002  # the field's name in the protocol
        output: Any = None,
        reliability: float | None = None,
    ) -> Contract:
        """Return the contract that such an offer would have, with `to` or with the best there is.

        Nothing is stored; `hand_off(contract=…)` makes the offer. For `input`, `output` and
        `reliability` see `find`.

        Raises:
            NoMatchError: nobody can be asked on such terms; `errors` has a reason for each.
        """
        fields = given(
            to=to,
            capability=capability,
            timeout=spelled_if(timeout),
            deadline=spelled_if(deadline),
            update_every=spelled_if(update_every),
            accept_within=spelled_if(accept_within),
            attempts_max=attempts_max,
            input=shape(input, mode="serialization"),
            output=shape(output, mode="validation"),
            reliability=reliability,
        )
        answer = await self.call("contract", fields)
        return msgspec.convert({**answer, **answer["contract"]}, Contract)

    async def register(self, manifest: Mapping[str, Any]) -> AgentShown:
        """Publish a manifest. A worker does this by itself."""
        published = fields_of(manifest, "manifest")
        agent = published.get("agent_id")
        require("manifest.agent_id", agent, str)
        answer = await self.call("register", {"manifest": published}, name=agent)
        return msgspec.convert(answer["agent"], AgentShown)

    # --- keys and rules ---

    async def invite(
        self,
        agent: str | None = None,
        *,
        role: str | None = None,
        expires: Duration | None = None,
    ) -> str:
        """Return an invitation to join, once and soon. For operators; see `nodrop.join`."""
        fields = given(agent=agent, role=role, expires=spelled_if(expires))
        answer = await self.call("create_invitation", fields)
        return answer["invitation"]

    async def keys(self, agent: str | None = None) -> list[KeyShown]:
        """Return the public keys of the team, or of one agent."""
        answer = await self.call("keys", given(agent=agent))
        return msgspec.convert(answer["keys"], list[KeyShown])

    async def revoke_key(self, key_id: str) -> KeyShown:
        """End a key at once: one's own, or as an operator anybody's."""
        answer = await self.call("revoke_key", name=key_id)
        return msgspec.convert(answer["key"], KeyShown)

    async def policy(self) -> dict[str, Any]:
        """Return the rules of the team."""
        return await self.call("get_policy")

    async def set_policy(
        self,
        *,
        signatures: str = "optional",
        allow: Sequence[Mapping[str, str]] = (),
        escalation: Sequence[Mapping[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Set the rules of the team, in the place of those before. For operators.

        `escalation` are the steps for offers that have none of the same kind: `when`, `after` and
        `notify`. None: the relay's default steps; empty: no steps.
        """
        fields = given(
            signatures=signatures,
            allow=plain(allow, "allow"),
            escalation=plain(escalation, "escalation"),
        )
        return await self.call("set_policy", fields)

    async def close(self) -> None:
        """Give up the connection. `async with nodrop.connect(...)` does this."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS_MAX):
                await self.flush()
        except TimeoutError:
            _LOG.warning("closed before the relay has heard of everything that is settled")
        await self.transport.close()


def _text(shape: dict[str, Any] | None) -> str | None:
    """Return a shape as an address holds it."""
    return None if shape is None else encode_strict(shape).decode()
