"""Push notifications: what the log says behind the cursor of each webhook, sent until it arrives.

At least once, in order, each with an id that stays the same: the log is the outbox, so a crash
loses nothing and repeats at most what was not yet known to have arrived. A place that is slow or
gone holds up nobody else. Which of several relays sends is `pushers`' business.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, TypeAlias

import httpx
from a2a.types import AuthenticationInfo, TaskPushNotificationConfig
from a2a.utils import proto_utils
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE
from a2a.utils.errors import TaskNotFoundError
from google.protobuf.json_format import MessageToDict

from nodrop.log.port import Key
from nodrop.model.errors import InvalidRequestError, NodropError, Problem
from nodrop.protocol import canonical
from nodrop.relay.coordination.webhooks import Webhook
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.a2a import events, tasks
from nodrop.servers.a2a.addresses import Addresses
from nodrop.servers.a2a.calling.visit import View, Visit, Way
from nodrop.servers.a2a.events import Update
from nodrop.servers.a2a.following import Following

log = logging.getLogger("nodrop.a2a")

TIMEOUT_SECONDS: Final = 15.0
FIRST_WAIT_MS: Final = 1_000
WAIT_MS_MAX: Final = 300_000
_TOGETHER_MAX: Final = 32
_SECRET_CHARS_MAX: Final = 4_096
_ID_CHARS_MAX: Final = 128
_GONE: Final = 410

Setting: TypeAlias = tuple[str, str]
"""(id, setting): a webhook of one handoff, until it is set anew."""


class Pushing:
    """Everything that is pushed from one relay."""

    def __init__(
        self,
        relay: Relay,
        way: Callable[[Caller], Way],
        *,
        following: Following,
        addresses: Addresses,
    ) -> None:
        self._require_role = relay.require_role
        self._webhooks = relay.webhooks
        self._clock = relay.clock
        self._limits = relay.limits
        self._way = way
        self._following = following
        self._addresses = addresses
        self._client = addresses.client(timeout_seconds=TIMEOUT_SECONDS)
        self._room = asyncio.Semaphore(_TOGETHER_MAX)
        self._running: dict[Key, dict[Setting, asyncio.Task[None]]] = {}

    async def close(self) -> None:
        """Send no more; what is not sent is sent by the next run."""
        running = [task for tasks in self._running.values() for task in tasks.values()]
        for handoff in self.about():
            self.look_after(handoff, ())
        await asyncio.gather(*running, return_exceptions=True)
        await self._client.aclose()

    # --- what callers ask for ---

    async def check(self, config: TaskPushNotificationConfig) -> None:
        """Refuse a place that nothing would be sent to."""
        await self._addresses.check(config.url, path="url")
        secrets = (config.token, config.authentication.scheme, config.authentication.credentials)
        if any(len(s) > _SECRET_CHARS_MAX or not _header_safe(s) for s in secrets):
            problem = Problem(path="authentication", message="cannot be sent in a header")
            raise InvalidRequestError("authentication cannot be sent", errors=(problem,))
        if len(config.id) > _ID_CHARS_MAX or "/" in config.id:
            problem = Problem(path="id", message=f"at most {_ID_CHARS_MAX} characters, no slash")
            raise InvalidRequestError("no such id", errors=(problem,))

    async def add(
        self, visit: Visit, handoff: View, config: TaskPushNotificationConfig, *, from_now: bool
    ) -> TaskPushNotificationConfig:
        """Push what becomes of a handoff; from its beginning, or from now on."""
        caller = visit.caller
        self._require_role(caller, "put_outlet")
        sent = await self._last_seq(visit.way, handoff["id"]) if from_now else 0
        name = config.id or canonical.sha256(config.url.encode())[:16]
        hook = Webhook(
            team=caller.team,
            handoff_id=handoff["id"],
            id=name,
            owner=caller.agent,
            url=config.url,
            token=config.token or None,
            scheme=config.authentication.scheme or None,
            credentials=config.authentication.credentials or None,
            sent=sent,
            ended=from_now and handoff["outcome"] is not None,
        )
        return _config(await self._webhooks.put(hook))

    async def get(self, visit: Visit, handoff: View, name: str) -> TaskPushNotificationConfig:
        """Return one of the caller's places."""
        for config in await self.all(visit, handoff):
            if config.id == name:
                return config
        raise TaskNotFoundError(message="no such push notification config")

    async def all(self, visit: Visit, handoff: View) -> list[TaskPushNotificationConfig]:
        """Return the caller's places."""
        return [_config(hook) for hook in await self._of(visit, handoff)]

    async def drop(self, visit: Visit, handoff: View, name: str) -> None:
        """Push no more to one of the caller's places, if it is one."""
        self._require_role(visit.caller, "remove_outlet")
        for hook in await self._of(visit, handoff):
            if hook.id == name:
                await self._webhooks.drop(hook)

    async def _of(self, visit: Visit, handoff: View) -> list[Webhook]:
        caller = visit.caller
        return await self._webhooks.of(caller.team, handoff["id"], owner=caller.agent)

    async def _last_seq(self, way: Way, handoff_id: str) -> int:
        after = 0
        while True:
            page = await way.call("log", {"handoff_id": handoff_id, "after": after, "limit": 500})
            if not page["entries"]:
                return after
            after = page["after"]

    # --- sending ---

    def about(self) -> list[Key]:
        """Return the handoffs that somebody is told of."""
        return list(self._running)

    def look_after(self, handoff: Key, hooks: Collection[Webhook]) -> None:
        """Tell these what becomes of a handoff, and nobody else."""
        wanted: dict[Setting, Webhook] = {(hook.id, hook.setting): hook for hook in hooks}
        running = self._running.get(handoff, {})
        for setting in running.keys() - wanted.keys():
            running.pop(setting).cancel()
        for setting in wanted.keys() - running.keys():
            self._run(setting, wanted[setting])
        if not self._running.get(handoff):
            self._running.pop(handoff, None)

    def _run(self, setting: Setting, hook: Webhook) -> None:
        running = self._running.setdefault(hook.handoff, {})
        running[setting] = task = asyncio.create_task(
            self._tell(hook), name=f"nodrop push {hook.record_id}"
        )

        def done(ended: asyncio.Task[None]) -> None:
            if running.get(setting) is ended:
                del running[setting]
                if not running and self._running.get(hook.handoff) is running:
                    del self._running[hook.handoff]
            if not ended.cancelled() and (error := ended.exception()) is not None:
                log.error("pushing %s failed", hook.record_id, exc_info=error)

        task.add_done_callback(done)

    async def _tell(self, hook: Webhook) -> None:
        """Tell a webhook what there is to tell, also while the relay can be asked only at times."""
        while True:
            try:
                if (now := await self._webhooks.find(hook)) is not None:
                    await self._go_on(now)
            except NodropError as error:
                if not error.retryable:
                    raise
                log.warning("the push of %s waits: %s", hook.record_id, error)
                await self._clock.sleep_until(self._clock.now() + FIRST_WAIT_MS)
            else:
                return

    async def _go_on(self, hook: Webhook) -> None:
        way = self._way(Caller(team=hook.team, agent=hook.owner))
        handoff = (await way.call("get_handoff", {}, handoff=hook.handoff_id))["handoff"]
        entries = self._following.entries(way, hook.handoff_id, after=hook.sent)
        try:
            async for entry in entries:
                for number, update in enumerate(events.updates(entry, handoff)):
                    if not await self._arrived(
                        hook, update, f"{entry['seq']}-{number}-{entry['hash'][:16]}"
                    ):
                        await self._give_up(hook, way, entry["seq"])
                        return
                if events.state_after(entry) in tasks.TERMINAL:
                    await self._webhooks.end(hook)
                    await self._settle(way, hook, handoff)
                    return
                await self._webhooks.advance(hook, sent=entry["seq"])
        finally:
            await entries.aclose()

    async def _arrived(self, hook: Webhook, update: Update, number: str) -> bool:
        """Send something until it has arrived; False: the relay gave up."""
        since, wait_ms = self._clock.now(), FIRST_WAIT_MS
        while True:
            status = await self._post(hook, update, f"{hook.record_id}/{number}")
            if status is not None and 200 <= status < 300:  # noqa: PLR2004  # what HTTP calls success
                return True
            if status == _GONE or self._clock.now() - since >= self._limits.webhook_ms_max:
                return False
            await self._clock.sleep_until(self._clock.now() + wait_ms)
            wait_ms = min(wait_ms * 2, WAIT_MS_MAX)

    async def _post(self, hook: Webhook, update: Update, name: str) -> int | None:
        headers = {
            "content-type": A2A_JSON_MEDIA_TYPE,
            "a2a-version": "1.0",
            "webhook-id": name,
            "webhook-timestamp": str(self._clock.now() // 1_000),
        }
        if hook.token:
            headers["x-a2a-notification-token"] = hook.token
        if hook.scheme:
            headers["authorization"] = f"{hook.scheme} {hook.credentials or ''}".rstrip()
        body = MessageToDict(proto_utils.to_stream_response(update))
        try:
            async with self._room:
                answer = await self._client.post(hook.url, json=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            log.info("a push of %s did not arrive: %r", hook.handoff_id, error)
            return None
        return answer.status_code

    async def _give_up(self, hook: Webhook, way: Way, seq: int) -> None:
        """Say in the log that somebody who wanted to hear of a handoff did not."""
        await self._webhooks.end(hook)
        text = f"the webhook {hook.id} did not take what happened at {seq}; the relay gave up"
        log.warning("%s: %s", hook.handoff_id, text)
        try:
            await way.call("note", {"text": text}, handoff=hook.handoff_id)
        except NodropError as error:
            log.warning("that could not be noted: %s", error)

    async def _settle(self, way: Way, hook: Webhook, handoff: View) -> None:
        if handoff["chain"]["origin"] == hook.owner:
            try:
                await way.call("settle", {"brief": True}, handoff=hook.handoff_id)
            except NodropError:
                return  # it was settled meanwhile


def _config(hook: Webhook) -> TaskPushNotificationConfig:
    config = TaskPushNotificationConfig(
        id=hook.id, task_id=hook.handoff_id, url=hook.url, token=hook.token or ""
    )
    if hook.scheme:
        authentication = AuthenticationInfo(scheme=hook.scheme, credentials=hook.credentials or "")
        config.authentication.CopyFrom(authentication)
    return config


def _header_safe(text: str) -> bool:
    return text.isascii() and (text.isprintable() or not text)
