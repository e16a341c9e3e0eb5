"""Waves: each is one kind of thing that an agent with a token may do, as much of it as it can.

Whatever the relay answers is fine; refusals are counted by their code. What the others notice is for the
bystander to say. Each wave also says how much of something it was let have, and `BOUNDS` how much that may
be; `CONTROLS` takes the bound away that a wave runs into, and then it has more.
"""

import asyncio
import itertools
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, cast

import aiohttp
import msgspec

NAME: Final = "mallory"
AT_ONCE: Final = 16
SOCKETS: Final = 1_500
"""More than one agent may have."""
HALF_REQUESTS: Final = 500
UNREAD: Final = 60
POLLS: Final = 2_000
STREAMS: Final = 100
NOTES: Final = 600
"""Entries of the log that it searches, at least."""
BODY_BYTES: Final = 1_000_000
LARGE: Final = 200
"""Large bodies that it has stored before it asks for them."""
_RECEIVE_BYTES: Final = 4_096

Wave = Callable[["Attacker"], Awaitable[None]]


class Attacker:
    """The adversary's connections, and what it was told."""

    def __init__(self, url: str, token: str, *, seed: int = 1) -> None:
        self.url = url
        self.token = token
        self.host, port = url.removeprefix("http://").rsplit(":", 1)
        self.port = int(port)
        self.told: Counter[str] = Counter()
        self.seen: dict[str, int] = {}
        """The most that it was let have of what `BOUNDS` names."""
        self.tell: Callable[[dict[str, int]], None] = lambda _: None
        """Called with `seen` whenever there is more."""
        self.random = random.Random(seed)  # noqa: S311  # to repeat a run, not to keep a secret
        self.numbers = itertools.count(1)
        self.ends_at = 0.0
        self.large: list[str] = []
        """Handoffs with large bodies, to itself."""
        self.large_count = LARGE
        self._session: aiohttp.ClientSession | None = None

    def saw(self, what: str, count: int) -> None:
        """Know how much of something it was let have, and tell it at once."""
        if count > self.seen.get(what, -1):
            self.seen[what] = count
            self.tell(self.seen)

    @property
    def goes_on(self) -> bool:
        """Whether the wave has time left."""
        return time.monotonic() < self.ends_at

    @property
    def left(self) -> float:
        """Seconds that the wave has left."""
        return max(self.ends_at - time.monotonic(), 0.0)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Have a pool of connections over HTTP."""
        headers = {"authorization": f"Bearer {self.token}"}
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            self.url, headers=headers, connector=connector, timeout=aiohttp.ClientTimeout(total=60)
        ) as session:
            self._session = session
            yield

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the relay answered; None: nothing that can be used."""
        assert self._session is not None, "it is open"
        data = None if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"}
        try:
            async with self._session.request(method, path, data=data, headers=headers) as answer:
                read = await answer.read()
            self.saw("bytes of an answer", len(read))
            said = msgspec.json.decode(read)
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            self.told[type(error).__name__] += 1
            return None
        self.told[said.get("code", "ok") if answer.status >= 400 else "ok"] += 1  # noqa: PLR2004  # HTTP's refusals
        return said if answer.status < 400 else None  # noqa: PLR2004  # HTTP's refusals

    async def at_once(self, work: Callable[[], Coroutine[Any, Any, Any]], count: int) -> None:
        """Do something again and again until the wave is over, `count` at a time."""

        async def again() -> None:
            while self.goes_on:
                await work()

        await asyncio.gather(*(again() for _ in range(count)))

    @asynccontextmanager
    async def channel(
        self, *, reads: bool = True
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket and say hello; one that is not read has a small buffer."""
        connector = aiohttp.TCPConnector(limit=0, socket_factory=None if reads else _small)
        async with aiohttp.ClientSession(connector=connector) as session:  # which says no goodbye
            channel = await session.ws_connect(f"{self.url}/v1/channel", max_msg_size=0)
            await channel.send_json({"id": 0, "op": "hello", "token": self.token})
            said = await channel.receive_json()
            self.told["ok" if "ok" in said else said["error"]["code"]] += 1
            if "ok" not in said:
                raise TypeError("it was not let in")
            yield channel


def _small(info: Any) -> socket.socket:
    made = socket.socket(info[0], info[1], info[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    made.setblocking(False)  # noqa: FBT003  # the socket's own word for it
    return made


# --- schemas and payloads ------------------------------------------------------------------------


def _recursive(kind: str) -> dict[str, Any]:
    again = {"$ref": "#/$defs/n"}
    branches = [
        {"type": "object", "properties": {"x": again}, "required": ["x", needed]}
        for needed in ("y", "z")
    ]
    return {"$defs": {"n": {kind: [*branches, {"type": "integer"}]}}, "$ref": "#/$defs/n"}


def _doubling(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)
    }
    return {"$defs": {**made, f"d{levels}": {}}, "$ref": "#/$defs/d0"}


def _nested(levels: int) -> Any:
    made: Any = 1.5
    for _ in range(levels):
        made = {"x": made, "y": 1}
    return made


async def schemas(attacker: Attacker) -> None:
    """Publish schemas that are costly to check, and offer what does not fit them."""
    hostile = [
        _recursive("anyOf"),
        _recursive("oneOf"),
        *(_doubling(levels) for levels in (10, 12)),
        {"pattern": "(a+)+$"},
        {"type": "array", "uniqueItems": True},
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
    ]
    payloads = [
        *(_nested(levels) for levels in (8, 16, 30, 60)),
        [[n] for n in range(20_000)],
        "a" * 30_000,
    ]

    async def published(schema: Any) -> bool:
        can = [{"name": "c", "input_schema": schema}]
        manifest = {"agent_id": NAME, "capabilities": can}
        return await attacker.ask("PUT", f"/v1/agents/{NAME}", manifest) is not None

    async def publish() -> None:
        await published(attacker.random.choice(hostile))
        for payload in payloads:
            offer = {"to": NAME, "capability": "c", "payload": payload}
            await attacker.ask("POST", "/v1/handoffs", offer)

    attacker.saw("schemas without end", int(await published(_doubling(60))))
    await attacker.at_once(publish, AT_ONCE)
    plain = {"agent_id": NAME, "capabilities": [{"name": "c"}]}
    await attacker.ask("PUT", f"/v1/agents/{NAME}", plain)


async def payloads(attacker: Attacker) -> None:
    """Send payloads at the bounds of size, width and depth, and over them."""
    made = [
        {"wide": {f"key {n}": n for n in range(40_000)}},
        [0] * 400_000,
        _nested(60),
        "x" * BODY_BYTES,
        "x" * (2 * BODY_BYTES),
        ["\\u0000"] * 100_000,
        {"f": [1e308, -0.0, 1e-300] * 30_000},
    ]

    async def send() -> None:
        payload = attacker.random.choice(made)
        if await attacker.ask("POST", "/v1/handoffs", {"to": NAME, "payload": payload}):
            attacker.saw("bytes of a payload", len(msgspec.json.encode(payload)))
        await attacker.ask("POST", "/v1/messages", {"to": NAME, "text": "x" * 20_000})

    await attacker.at_once(send, AT_ONCE // 4)


# --- connections ---------------------------------------------------------------------------------


async def sockets(attacker: Attacker) -> None:
    """Open more WebSockets than one agent may have, and half requests beside them."""
    async with AsyncExitStack() as stack:
        for _ in range(HALF_REQUESTS):
            with suppress(OSError):
                _, writer = await asyncio.open_connection(attacker.host, attacker.port)
                writer.write(b"POST /v1/handoffs HTTP/1.1\r\nhost: x\r\n")
                stack.callback(writer.close)

        count = itertools.count(1)

        async def one() -> None:
            with suppress(aiohttp.ClientError, OSError, TimeoutError, TypeError, KeyError):
                await stack.enter_async_context(attacker.channel())
                attacker.saw("connections", next(count))

        for _ in range(SOCKETS // AT_ONCE):
            if not attacker.goes_on:
                break
            await asyncio.gather(*(one() for _ in range(AT_ONCE)))
        await asyncio.sleep(attacker.left)


async def unread(attacker: Attacker) -> None:
    """Ask for large answers over connections that are never read."""
    await _store_large(attacker, attacker.large_count)
    async with AsyncExitStack() as stack:
        few = [await stack.enter_async_context(attacker.channel(reads=False)) for _ in range(4)]
        for channel in few:
            asked = [
                {"id": n, "op": "get_handoff", "handoff_id": handoff}
                for n, handoff in enumerate(attacker.large)
            ]
            await channel.send_str(msgspec.json.encode(asked).decode())
        while attacker.goes_on:
            for _ in range(UNREAD):
                if not attacker.goes_on:
                    break
                with suppress(aiohttp.ClientError, OSError, TimeoutError, TypeError):
                    channel = await stack.enter_async_context(attacker.channel(reads=False))
                    asked = [
                        {"id": n, "op": "get_handoff", "handoff_id": handoff}
                        for n, handoff in enumerate(attacker.large)
                    ]
                    asked += [
                        {"id": 10_000 + n, "op": "list_handoffs", "limit": 500} for n in range(4)
                    ]
                    asked += [{"id": 20_000 + n, "op": "inbox", "limit": 500} for n in range(4)]
                    await channel.send_str(msgspec.json.encode(asked).decode())
                    await channel.send_json({"id": 30_000, "op": "credit", "n": 10_000})
            await asyncio.sleep(min(attacker.left, 5))
        told = sum(await asyncio.gather(*map(_read_late, few)), Counter[str]())
        attacker.told.update(told)
        attacker.saw("answers kept unread", 0 if told["refused"] else told["answered"])


async def _read_late(channel: aiohttp.ClientWebSocketResponse) -> Counter[str]:
    """Return what was kept for who did not read it, and what was refused or given up meanwhile."""
    told = Counter[str]()
    try:
        while True:
            for each in _each(await channel.receive_json(timeout=2)):
                told["refused" if "error" in each else "answered"] += 1
    except TimeoutError:
        pass
    except TypeError:  # closed as too slow
        told["refused"] += 1
    return told


async def waits(attacker: Attacker) -> None:
    """Wait for what does not come: followers, long polls, streams of the log."""
    made = await attacker.ask("POST", "/v1/handoffs", {"to": NAME, "title": "never"})
    if made is None:
        return
    about = made["handoff"]["id"]
    head = (await attacker.ask("GET", "/v1/inbox?limit=500") or {"after": 0})["after"]
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(attacker.channel()) for _ in range(8)]
        for channel in channels:
            asked = [
                {"id": n, "op": op, "wait": "120s", **more}
                for n, (op, more) in enumerate(
                    itertools.islice(
                        itertools.cycle(
                            [
                                ("get_handoff", {"handoff_id": about, "until": "finished"}),
                                ("inbox", {"after": head}),
                                ("log", {"after": head, "handoff_id": about}),
                            ]
                        ),
                        POLLS,
                    )
                )
            ]
            asked.append({"id": POLLS, "op": "topics"})
            await channel.send_str(msgspec.json.encode(asked).decode())
        counting = asyncio.create_task(_count_polls(attacker, channels))
        stack.callback(counting.cancel)
        polls = [
            asyncio.create_task(attacker.ask("GET", f"/v1/handoffs/{about}?wait=60s"))
            for _ in range(STREAMS)
        ]
        headers = {"authorization": f"Bearer {attacker.token}", "accept": "text/event-stream"}
        session = await stack.enter_async_context(aiohttp.ClientSession(headers=headers))
        for _ in range(STREAMS):
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await session.get(f"{attacker.url}/v1/log?after=0")
        await attacker.at_once(lambda: _talk(attacker), 2)
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)


async def _count_polls(
    attacker: Attacker, channels: Sequence[aiohttp.ClientWebSocketResponse]
) -> None:
    """Count the polls that wait: all that were read but those that were answered or refused.

    What was asked last on a channel does not wait: once it is answered, all before it was read.
    """
    asked = len(channels) * sum(n % 3 != 0 for n in range(POLLS))
    answered = read_to_the_end = 0

    async def read(channel: aiohttp.ClientWebSocketResponse) -> None:
        nonlocal answered, read_to_the_end
        with suppress(TypeError):
            while True:
                said = await channel.receive_json()
                ids = [each["id"] for each in _each(said)]
                read_to_the_end += ids.count(POLLS)
                answered += sum(n % 3 != 0 for n in ids if n < POLLS)

    reading = [asyncio.create_task(read(channel)) for channel in channels]
    try:
        await asyncio.sleep(max(attacker.left - 1, 1))
        if read_to_the_end == len(channels):
            attacker.saw("polls", asked - answered)
    finally:
        for task in reading:
            task.cancel()


def _each(said: Any) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", said if isinstance(said, list) else [said])


# --- what is kept --------------------------------------------------------------------------------


async def _talk(attacker: Attacker) -> None:
    number = next(attacker.numbers)
    await attacker.ask("PUT", f"/v1/topics/topic-{number}")
    await attacker.ask("POST", "/v1/messages", {"topic": f"topic-{number}", "text": "x" * 1_000})
    await attacker.ask("POST", "/v1/statuses", {"status": "working", "text": f"at {number}"})


async def topics(attacker: Attacker) -> None:
    """Subscribe to topics, write to them, tell statuses."""
    await attacker.at_once(lambda: _talk(attacker), AT_ONCE)
    listed = await attacker.ask("GET", "/v1/topics")
    attacker.saw("topics", len(listed["topics"]) if listed else 0)


async def identities(attacker: Attacker) -> None:
    """Make tokens, ask for keys, invitations, contracts and agents."""

    async def make() -> None:
        made = await attacker.ask("POST", "/v1/tokens", {"agent": NAME})
        if made is not None and attacker.random.random() < 0.5:  # noqa: PLR2004  # half of them
            await attacker.ask("DELETE", f"/v1/tokens/{made['token_id']}")
        await attacker.ask("POST", "/v1/keys", {"public_key": "x", "proof": "y"})
        await attacker.ask("POST", "/v1/invitations", {"agent": NAME})
        await attacker.ask("POST", "/v1/contracts", {"capability": "c"})
        tokens = await attacker.ask("GET", "/v1/tokens")
        listed = (tokens or {"tokens": ()})["tokens"]
        attacker.saw("tokens", sum(token.get("revoked_at") is None for token in listed))
        await attacker.ask("GET", "/v1/agents?limit=500")

    await attacker.at_once(make, AT_ONCE)


async def _store_large(attacker: Attacker, count: int) -> None:
    while len(attacker.large) < count and attacker.goes_on:
        body = {"to": NAME, "payload": "x" * BODY_BYTES, "deadline": "10m"}
        made = await attacker.ask("POST", "/v1/handoffs", body)
        if made is None:
            return
        attacker.large.append(made["handoff"]["id"])


async def bodies(attacker: Attacker) -> None:
    """Offer itself large bodies, take all of them at once, and list them."""
    await _store_large(attacker, attacker.large_count)

    async def read() -> None:
        await attacker.ask("POST", "/v1/inbox/take", {"max": 256, "heartbeat_seconds": 0.1})
        await attacker.ask("GET", "/v1/handoffs?limit=500")
        await attacker.ask("GET", "/v1/inbox?limit=500")

    await attacker.at_once(read, AT_ONCE // 2)


async def loops(attacker: Attacker) -> None:
    """Offer, take, fail and give back without end."""

    async def turn() -> None:
        offers = [{"to": NAME, "attempts_max": 100, "backoff": {"first": "1ms"}} for _ in range(8)]
        await asyncio.gather(*(attacker.ask("POST", "/v1/handoffs", offer) for offer in offers))
        listed = await attacker.ask("GET", "/v1/handoffs?state=offered&limit=500")
        attacker.saw("unfinished handoffs", len(listed["handoffs"]) if listed else 0)
        taken = await attacker.ask("POST", "/v1/inbox/take", {"max": 16, "heartbeat_seconds": 5})
        deliveries: list[dict[str, Any]] = taken["deliveries"] if taken else []
        for number, delivery in enumerate(deliveries):
            path = f"/v1/handoffs/{delivery['handoff']['id']}"
            end = ("fail", "release", "reject")[number % 3]
            told = {"attempt": delivery["attempt"]}
            await attacker.ask(
                "POST", f"{path}/{end}", told | ({"retryable": True} if end == "fail" else {})
            )

    await attacker.at_once(turn, AT_ONCE)


async def searches(attacker: Attacker) -> None:
    """Search the log, list everything, and ask for what is not there."""
    paths = [
        "/v1/log?text=nowhere&limit=100000",
        "/v1/log?after=0&limit=100000",
        "/v1/log?actor=nobody&limit=100000",
        "/v1/log?type=handoff.expired&limit=100000",
        "/v1/log?since=1d&text=x&limit=100000",
        "/v1/handoffs?limit=100000",
        "/v1/handoffs?state=expired&limit=100000",
        "/v1/dead-letters?limit=100000",
        "/v1/inbox?limit=100000",
        "/v1/messages?limit=100000",
        "/v1/topics",
        "/v1/trace/nothing",
        "/v1/agents?capability=c&limit=100000",
        "/v1/checkpoints",
    ]

    written = 0
    while written < NOTES and attacker.goes_on:
        notes = (attacker.ask("POST", "/v1/notes", {"text": f"note {n}"}) for n in range(AT_ONCE))
        written += len(await asyncio.gather(*notes))

    async def look() -> None:
        found: dict[str, Any] | None
        found = await attacker.ask("GET", attacker.random.choice(paths))
        attacker.saw(
            "items of a page", len(found["entries"]) if found and "entries" in found else 0
        )

    await attacker.at_once(look, AT_ONCE)


WAVES: Final[dict[str, Wave]] = {
    wave.__name__: wave
    for wave in (
        schemas,
        payloads,
        sockets,
        unread,
        waits,
        topics,
        identities,
        bodies,
        loops,
        searches,
    )
}


BOUNDS: Final = {
    "schemas without end": 0,
    "bytes of a payload": 1_048_576,
    "connections": 500,
    "answers kept unread": 0,
    "polls": 1_000,
    "topics": 10_000,
    "tokens": 100,
    "bytes of an answer": 21_000_000,
    "unfinished handoffs": 100_000,
    "items of a page": 500,
}
"""How much an adversary may have of each."""

NO_BOUND: Final = 2**40

CONTROLS: Final[dict[str, dict[str, int]]] = {
    "schemas": {"schema_expanded_max": 2**62, "schema_steps_max": 2**62},
    "payloads": {"body_bytes_max": NO_BOUND, "frame_bytes_max": NO_BOUND},
    "sockets": {"connections_per_agent_max": NO_BOUND},
    "unread": {
        "outgoing_bytes_max": NO_BOUND,
        "outgoing_bytes_per_agent_max": NO_BOUND,
        "outgoing_bytes_per_relay_max": NO_BOUND,
    },
    "waits": {"polls_per_agent_max": NO_BOUND},
    "topics": {"topics_max": NO_BOUND},
    "identities": {"tokens_per_agent_max": NO_BOUND},
    "bodies": {"page_bytes_max": NO_BOUND},
    "loops": {"open_handoffs_max": NO_BOUND, "inbox_handoffs_max": NO_BOUND},
    "searches": {"page_items_max": NO_BOUND},
}
"""The bounds that each wave runs into, taken away."""
