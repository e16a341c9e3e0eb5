"""Outlets: where an agent's inbox is sent on to. Knows where, how far, and nothing of how.

An inbox is durable and ordered already, so the outbox of an outlet is a cursor into it: kept after
each item, in the log where an item was given up on. `outbound.outlets` does the sending.
"""

import asyncio
import base64
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from nodrop.log.port import Key, Mail, Record, Store, Wanted
from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    LimitReachedError,
    NotFoundError,
    Problem,
)
from nodrop.model.mail import Kind
from nodrop.protocol import bodies, extras
from nodrop.protocol.addresses import is_public
from nodrop.protocol.coordination.outlet_requests import (
    ListOutlets,
    OutletAnswer,
    OutletsAnswer,
    OutletView,
    PutOutlet,
    RemoveOutlet,
)
from nodrop.relay.batch import Batch
from nodrop.relay.engine import Engine
from nodrop.relay.identity.people import draft
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob, Job
from nodrop.relay.ports import Ids
from nodrop.relay.shows import Caller

KIND: Final = "outlet"
PROGRESS: Final = "outlet_progress"
TESTED: Final = "outlet.tested.v1"
WEBHOOK: Final = "webhook"
NOTIFY: Final = "notify"
_KINDS: Final = (WEBHOOK, NOTIFY)
_SENDERS: Final = {WEBHOOK: "standardwebhooks", NOTIFY: "apprise"}
"""The module that sends each kind: an outlet that nothing can send to is refused."""
_SECRET: Final = "whsec_"  # noqa: S105  # the prefix that Standard Webhooks gives to secrets
_URL_CHARS_MAX: Final = 2_000
_WHICH: Final = "Check the name; `nodrop notify list` shows where inboxes are sent."


class Outlet(msgspec.Struct, frozen=True, kw_only=True):
    """One outlet, as it is kept."""

    name: str
    team: str
    kind: str
    agent: str
    url: str
    kinds: tuple[str, ...]
    secret: str | None
    allow_private: bool
    after: int
    since: int = 0
    """Where the log ended when it was set: set anew, it is another."""
    sent: int = 0
    given_up: int = 0


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an outlet has come. A record of its own: whoever sends changes nothing else."""

    since: int
    """Of the outlet that it is about."""
    after: int
    sent: int
    given_up: int


class Outlets:
    """The outlets of every team."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        intake: Intake,
        ids: Ids,
        tell: Callable[[Key, Mail], None],
    ) -> None:
        self.changed = asyncio.Event()
        """Set when an outlet was added or taken away."""
        self._engine = engine
        self._store = store
        self._intake = intake
        self._ids = ids
        self._tell = tell
        self._outlets: dict[tuple[str, str], Outlet] = {}
        self._failing: dict[tuple[str, str], str] = {}

    async def load(self, team: str | None = None) -> None:
        """Read what the store knows, of one team or of all, and nothing else."""
        records = await self._store.records(KIND, of=None if team is None else (team, ""))
        before = {key: o for key, o in self._outlets.items() if team in {None, o.team}}
        for key in before:
            del self._outlets[key]
        for record in records:
            outlet = msgspec.json.decode(record.json, type=Outlet)
            key = (outlet.team, outlet.name)
            same = key in before and before[key].since == outlet.since
            self._outlets[key] = before[key] if same else outlet
        await self.recall()
        self.changed.set()

    async def recall(self) -> None:
        """Read how far each outlet has come: another engine may have sent for it."""
        for record in await self._store.records(PROGRESS):
            known = self.get(record.team, record.id)
            told = msgspec.json.decode(record.json, type=Progress)
            if known is not None and told.since == known.since and told.after > known.after:
                self._outlets[known.team, known.name] = replace(
                    known, after=told.after, sent=told.sent, given_up=told.given_up
                )

    def all(self) -> list[Outlet]:
        """Return every outlet there is."""
        return list(self._outlets.values())

    def get(self, team: str, name: str) -> Outlet | None:
        """Return an outlet as it is now."""
        return self._outlets.get((team, name))

    # --- what callers ask for ---

    async def call(
        self, caller: Caller, request: PutOutlet | RemoveOutlet | ListOutlets, name: str
    ) -> OutletAnswer | OutletsAnswer:
        """Set an outlet, take one away, or list them."""
        match request:
            case PutOutlet():
                return await self._put(caller, request, name)
            case RemoveOutlet():
                return await self._remove(caller, request, name)
            case ListOutlets():
                await self.recall()
                mine = [o for o in self.all() if o.team == caller.team and _may(caller, o.agent)]
                return OutletsAnswer(outlets=tuple(map(self._shown, mine)))

    async def _put(self, caller: Caller, request: PutOutlet, name: str) -> OutletAnswer:
        self._intake.name(name, "name")
        agent = caller.agent if request.inbox is None else request.inbox
        self._intake.agent(agent, "inbox")
        _check(request)
        if not _may(caller, agent):
            raise ForbiddenError(f"{caller.agent} cannot have the inbox of {agent} sent on")
        if (request.allow_private or request.kind == NOTIFY) and not caller.operator:
            raise ForbiddenError("only an operator may let the relay reach out there")
        if find_spec(_SENDERS[request.kind]) is None:
            raise extras.missing_at_relay(_SENDERS[request.kind])
        known = self.get(caller.team, name)
        if known is not None and not _may(caller, known.agent):
            raise ForbiddenError(f"{name} is the outlet of somebody else")
        most = self._engine.limits.outlets_max
        if known is None and sum(o.team == caller.team for o in self.all()) >= most:
            raise LimitReachedError(f"this team has {most} outlets already")
        secret = request.secret
        if request.kind == WEBHOOK and secret is None:
            made = base64.b64encode(self._ids.secret().encode()[:32]).decode()
            secret = f"{_SECRET}{made}"
        head = (await self._store.head(caller.team)).seq
        outlet = Outlet(
            name=name,
            team=caller.team,
            kind=request.kind,
            agent=agent,
            url=request.url,
            kinds=request.kinds,
            secret=secret,
            allow_private=request.allow_private,
            after=head,
            since=head,
        )
        data = {"name": name, "agent": agent, "kind": outlet.kind}

        def run(batch: Batch) -> None:
            json = msgspec.json.encode(outlet)
            batch.keep_record(Record(team=outlet.team, kind=KIND, id=outlet.name, json=json))
            command_id = request.command_id
            batch.write(draft(caller, batch, "outlet.set.v1", data, command_id=command_id))

        await self._engine.submit(FunctionJob(Wanted(), run))
        self._outlets[outlet.team, outlet.name] = outlet
        self._failing.pop((caller.team, name), None)
        self.changed.set()
        if request.test:
            await self._test(caller, outlet)
        return OutletAnswer(outlet=self._shown(outlet), secret=secret)

    async def _test(self, caller: Caller, outlet: Outlet) -> None:
        """Put something into the inbox that is sent on, as it would come there."""
        text = (
            f"This is a test of the outlet {outlet.name}: what waits for {outlet.agent} comes here."
        )
        body = bodies.data("text", text)

        def run(batch: Batch) -> Callable[[Sequence[int]], tuple[int, int]]:
            said = draft(caller, batch, TESTED, {"name": outlet.name}, body=body)
            index = batch.write(replace(said, mail=((outlet.agent, Kind.MESSAGE.value),)))
            at = batch.now
            return lambda seqs: (seqs[index], at)

        job: Job[Any] = FunctionJob(Wanted(), run)
        seq, at = await self._engine.submit(job)
        mail = Mail(
            seq=seq,
            kind=Kind.MESSAGE.value,
            at=at,
            actor=caller.agent,
            type=TESTED,
            handoff_id=None,
            version=None,
        )
        self._tell((outlet.team, outlet.agent), mail)

    async def _remove(self, caller: Caller, request: RemoveOutlet, name: str) -> OutletAnswer:
        known = self.get(caller.team, name)
        if known is None or not _may(caller, known.agent):
            raise NotFoundError("no such outlet", next_step=_WHICH)

        def run(batch: Batch) -> None:
            batch.drop_record(caller.team, KIND, name)
            batch.drop_record(caller.team, PROGRESS, name)
            said = {"name": name}
            command_id = request.command_id
            batch.write(draft(caller, batch, "outlet.removed.v1", said, command_id=command_id))

        await self._engine.submit(FunctionJob(Wanted(), run))
        self._outlets.pop((caller.team, name), None)
        self.changed.set()
        return OutletAnswer(outlet=self._shown(known))

    # --- what the sender tells ---

    async def sent(self, outlet: Outlet, seq: int, *, count: int = 1) -> None:
        """Remember that everything up to `seq` is out."""
        self._failing.pop((outlet.team, outlet.name), None)
        await self._come_to(outlet, seq, sent=count)

    async def reset(self, outlet: Outlet) -> None:
        """Go back to where the store says that an outlet is, or to the end of a log before that."""
        end = (await self._store.head(outlet.team)).seq
        after = min(outlet.since, end)
        for record in await self._store.records(PROGRESS, of=(outlet.team, outlet.name)):
            told = msgspec.json.decode(record.json, type=Progress)
            if record.id == outlet.name and told.since == outlet.since:
                after = min(told.after, end)
        self._outlets[outlet.team, outlet.name] = replace(outlet, after=after)

    async def failed(self, outlet: Outlet, why: str) -> None:
        """Remember why the last try did not work out."""
        self._failing[outlet.team, outlet.name] = why[:200]

    async def give_up(self, outlet: Outlet, seq: int, why: str) -> None:
        """Write down that an item could not be sent, and go on behind it."""
        self._failing[outlet.team, outlet.name] = why[:200]
        await self._come_to(outlet, seq, given_up=1)

    async def _come_to(self, outlet: Outlet, seq: int, *, sent: int = 0, given_up: int = 0) -> None:
        """Remember how far an outlet has come, unless it is gone or was set anew meanwhile."""
        before = self.get(outlet.team, outlet.name)
        if before is None or before.since != outlet.since:
            return
        now = replace(
            before, after=seq, sent=before.sent + sent, given_up=before.given_up + given_up
        )
        progress = Progress(since=now.since, after=now.after, sent=now.sent, given_up=now.given_up)
        json = msgspec.json.encode(progress)

        def run(batch: Batch) -> None:
            batch.keep_record(Record(team=now.team, kind=PROGRESS, id=now.name, json=json))
            if given_up:
                relay = Caller(team=now.team, agent="relay", operator=True)
                said = {"name": now.name, "seq": seq}
                batch.write(draft(relay, batch, "outlet.gave_up.v1", said))

        await self._engine.submit(FunctionJob(Wanted(), run))
        known = self.get(now.team, now.name)
        if known is not None and known.since == now.since:
            self._outlets[now.team, now.name] = now

    def _shown(self, outlet: Outlet) -> OutletView:
        return OutletView(
            name=outlet.name,
            kind=outlet.kind,
            agent=outlet.agent,
            place=place(outlet),
            kinds=outlet.kinds,
            after=outlet.after,
            sent=outlet.sent,
            given_up=outlet.given_up,
            failing=self._failing.get((outlet.team, outlet.name)),
        )


def place(outlet: Outlet) -> str:
    """Return where an outlet leads, without what would let somebody else in there."""
    scheme = outlet.url.partition("://")[0]
    if outlet.kind != WEBHOOK:
        return f"{scheme}://…"
    try:
        parts = urlsplit(outlet.url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # kept before addresses were looked at
        return f"{scheme}://…"
    return f"{scheme}://{parts.hostname or ''}{port}{parts.path}"


def _may(caller: Caller, agent: str) -> bool:
    return caller.operator or caller.agent == agent


def _check(request: PutOutlet) -> None:
    problems: list[Problem] = []
    if request.kind not in _KINDS:
        problems.append(Problem(path="kind", message=f"expected one of {', '.join(_KINDS)}"))
    elif wrong := _wrong_address(request):
        problems.append(Problem(path="url", message=wrong))
    if unknown := set(request.kinds) - {kind.value for kind in Kind}:
        message = f"no items are called {', '.join(sorted(unknown))}"
        problems.append(Problem(path="kinds", message=message))
    if request.secret is not None and not _is_secret(request.secret):
        problems.append(Problem(path="secret", message=f"expected {_SECRET} and base64"))
    if problems:
        first = f"{problems[0].path}: {problems[0].message}"
        raise InvalidRequestError(first, errors=tuple(problems))


def _wrong_address(request: PutOutlet) -> str | None:
    """Return what is wrong with an address, as far as it can be seen without going there."""
    url = request.url
    if len(url) > _URL_CHARS_MAX or "://" not in url or not url.isprintable() or " " in url:
        return f"expected an address such as https://…, of at most {_URL_CHARS_MAX} characters"
    if request.kind == NOTIFY:  # in forms of their own, of which the sender knows more
        return None
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"not an address: {error}"
    if parts.scheme not in {"http", "https"} or not host:
        return "expected http:// or https://, and a host"
    if not request.allow_private and _is_private(host):
        # Names are looked up when something is sent, each time.
        return f"{host} is not a public address; an operator may allow it (allow_private)"
    return None


def _is_private(host: str) -> bool:
    try:
        return not is_public(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_secret(secret: str) -> bool:
    try:
        return bool(base64.b64decode(secret.removeprefix(_SECRET), validate=True)) and (
            secret.startswith(_SECRET)
        )
    except ValueError:
        return False
