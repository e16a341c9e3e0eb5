"""Reach: how an agent is reached beyond its team, as an operator set it.

Two facts per agent: whether callers without a token may hand it work, and where it lives if it is
somebody else's A2A agent. What is done with them is for the doors. The secret that an agent
elsewhere wants is kept, never shown.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from nodrop.log.port import Record, Store, Wanted
from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    Problem,
    UnavailableError,
)
from nodrop.protocol import requests
from nodrop.protocol.identity import key_views
from nodrop.relay.batch import Batch
from nodrop.relay.engine import Engine
from nodrop.relay.identity.people import People, draft
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.shows import Caller

KIND: Final = "reach"
_URL_CHARS_MAX: Final = 2_000
_SCHEMES: Final = frozenset({"http", "https"})


class Reach(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one agent is reached."""

    team: str
    agent: str
    public: bool = False
    a2a: str | None = None
    """The address of its agent card, or of the folder that has one."""
    token: str | None = None
    private: bool = False
    """An operator allowed the address although it is not a public one."""


class Carrier(Protocol):
    """Delivers to agents elsewhere."""

    def reach_changed(self) -> None:
        """Take note that an agent elsewhere was added, moved or dropped."""
        ...

    async def check(self, address: str) -> None:
        """Refuse an address that it would not call, and that nobody had to allow."""
        ...


class Reaches:
    """The reach of every agent that has one."""

    def __init__(self, engine: Engine, store: Store, *, people: People, intake: Intake) -> None:
        self._engine = engine
        self._store = store
        self._people = people
        self._intake = intake
        self._known: dict[tuple[str, str], Reach] = {}
        self._carriers: list[Carrier] = []

    @contextmanager
    def carried(self, carrier: Carrier) -> Generator[None]:
        """Have `carrier` deliver to agents elsewhere while the block runs."""
        self._carriers.append(carrier)
        try:
            yield
        finally:
            self._carriers.remove(carrier)

    async def load(self, team: str | None = None) -> None:
        """Read what the store knows, of one team or of all, and nothing else."""
        records = await self._store.records(KIND, of=None if team is None else (team, ""))
        for of, agent in list(self._known):
            if team in {None, of}:
                del self._known[of, agent]
        for record in records:
            self._know(msgspec.json.decode(record.json, type=Reach))
        self._tell()

    def get(self, team: str, agent: str) -> Reach:
        """Return how an agent is reached; within its team only, where nobody said otherwise."""
        return self._known.get((team, agent)) or Reach(team=team, agent=agent)

    def elsewhere(self) -> list[Reach]:
        """Return every agent that lives elsewhere."""
        return [reach for reach in self._known.values() if reach.a2a is not None]

    async def call(
        self, caller: Caller, request: requests.SetReach | requests.GetReach, agent: str
    ) -> key_views.ReachAnswer:
        """Carry out an operation about reach."""
        if not caller.operator:
            raise ForbiddenError("how an agent is reached is an operator's business")
        self._intake.agent(agent, "agent")
        if isinstance(request, requests.GetReach):
            if not self._people.known(caller.team, agent):
                raise NotFoundError("no such agent")
            return _view(self.get(caller.team, agent))
        return await self._set(caller, request, agent)

    async def _set(
        self, caller: Caller, request: requests.SetReach, agent: str
    ) -> key_views.ReachAnswer:
        self._intake.text(request.token, "token")
        _check_token(request.token)
        if not request.a2a and not self._people.known(caller.team, agent):
            wanted = "`nodrop agents` lists who is there; `nodrop agents add` adds one elsewhere."
            raise NotFoundError("no such agent", next_step=wanted)
        known = self.get(caller.team, agent)
        reach = Reach(
            team=caller.team,
            agent=agent,
            public=known.public if request.public is None else request.public,
            a2a=known.a2a if request.a2a is None else _address(request.a2a),
            token=known.token if request.token is None else request.token or None,
            private=known.private if request.private is None else request.private,
        )
        moved = (reach.a2a, reach.private) != (known.a2a, known.private)
        if moved and reach.a2a is not None and not reach.private:
            for carrier in self._carriers:
                await carrier.check(reach.a2a)

        def run(batch: Batch) -> Reach:
            data = msgspec.json.encode(reach)
            batch.keep_record(Record(team=caller.team, kind=KIND, id=agent, json=data))
            self._people.admit(batch, caller.team, agent)
            said = {
                "agent": agent,
                "public": reach.public,
                "host": None if reach.a2a is None else urlsplit(reach.a2a).netloc,
                "private": reach.private,
            }
            command_id = request.command_id
            batch.write(draft(caller, batch, "agent.reach_set.v1", said, command_id=command_id))
            return reach

        try:
            self._know(await self._engine.submit(FunctionJob(Wanted(), run)))
        except UnavailableError:
            await self.load()  # nobody knows whether it was kept
            raise
        finally:
            self._tell()
        return _view(reach)

    def _tell(self) -> None:
        for carrier in self._carriers:
            carrier.reach_changed()

    def _know(self, reach: Reach) -> None:
        self._known[reach.team, reach.agent] = reach


def _check_token(token: str | None) -> None:
    if token and not (token.isascii() and token.isprintable() and token == token.strip()):
        problem = Problem(path="token", message="expected printable ASCII: a header carries it")
        raise InvalidRequestError("the token cannot be sent", errors=(problem,))


def _address(url: str) -> str | None:
    """Return an address that an agent card may be at; None: none."""
    if not url:
        return None
    try:
        parts = urlsplit(url)
        sound = bool(
            parts.scheme in _SCHEMES
            and parts.hostname
            and parts.port != 0
            and parts.username is None
            and len(url) <= _URL_CHARS_MAX
            and url.isascii()
            and url.isprintable()
        )
    except ValueError:
        sound = False
    if not sound:
        problem = Problem(path="a2a", message="expected http(s)://HOST[:PORT]/… without a user")
        raise InvalidRequestError("no address of an agent", errors=(problem,))
    return url


def _view(reach: Reach) -> key_views.ReachAnswer:
    return key_views.ReachAnswer(
        agent=reach.agent,
        public=reach.public,
        a2a=reach.a2a,
        token=reach.token is not None,
        private=reach.private,
    )
