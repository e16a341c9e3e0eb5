"""A relay process on a file system of a few megabytes, which is filled up and emptied under load.

Linux, and only for those who may mount. What the load is held against is `check`; a probe that does
not try again sees what a caller is told while there is no room.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from nodrop.client.auth.credentials import CredentialsFile
from nodrop.client.auth.tokens import OPERATOR, FixedToken
from nodrop.client.client import Client
from nodrop.client.transports.http import HttpTransport
from nodrop.client.transports.retrying import Retrying
from nodrop.model.errors import NodropError, StoreFullError, UnavailableError
from nodrop_proof.chaos import export
from nodrop_proof.chaos.callers import Callers, calling
from nodrop_proof.chaos.check import Verdict
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess
from nodrop_proof.chaos.report import Report, Restarts
from nodrop_proof.chaos.worker import worker, working

MEGABYTES: Final = 96
"""Room for what is handed off between the first time that the disk is full and the last."""
FULLS_MAX: Final = 8
"""Times that one file system is filled up."""
FLOW_ANSWERS: Final = 64
FLOW_SECONDS: Final = 0.2
FULL_SECONDS: Final = 0.3
ROOM_BYTES_MAX: Final = 300_000
WAIT_SECONDS_MAX: Final = 20.0
PROBE_SECONDS: Final = 0.01


class NotPermittedError(Exception):
    """Here nobody may mount a file system."""


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Fill the disk `plan.count` times.

    Raises:
        NotPermittedError: no file system can be mounted; nothing was done.
    """
    began = time.monotonic()
    chance = random.Random(plan.seed)  # noqa: S311  # to be repeated, not to be secret
    run_ = _Run(plan, chance, progress)
    verdict: Verdict | None = None
    while run_.fulls < plan.count:
        found = await run_.on_one_disk(min(plan.count - run_.fulls, FULLS_MAX))
        verdict = found if verdict is None else verdict + found
    assert verdict is not None, "a plan has at least one fault"
    verdict = msgspec.structs.replace(verdict, wrong=(*verdict.wrong, *run_.wrong))
    return verdict.report(
        plan,
        count=run_.fulls,
        seconds=time.monotonic() - began,
        extras={
            "disk": f"tmpfs of {MEGABYTES} MB",
            "refusals": dict(run_.refusals),
            "served_again_ms": msgspec.to_builtins(Restarts.of(run_.served_again_ms)),
        },
    )


class _Run:
    """The sums of a run."""

    def __init__(
        self, plan: Plan, chance: random.Random, progress: Callable[[int, int], None]
    ) -> None:
        self.fulls = 0
        self.refusals: Counter[str] = Counter()
        self.served_again_ms: list[float] = []
        self.wrong: list[str] = []
        self._plan = plan
        self._chance = chance
        self._progress = progress
        self._disks = 0

    async def on_one_disk(self, fulls: int) -> Verdict:
        """Fill one disk several times, then look what its relay holds."""
        self._disks += 1
        folder = self._plan.folder / f"disk-{self._disks}"
        log = self._plan.folder / f"relay-{self._disks}.log"  # the disk goes, and is full
        async with mounted(folder), RelayProcess(folder / "relay", log=log) as relay:
            with Record(self._plan.folder / f"records-{self._disks}.jsonl") as record:
                async with (
                    working(worker(record), relay),
                    calling(relay, record, callers=self._plan.callers) as callers,
                    _probing(relay) as probe,
                ):
                    for _ in range(fulls):
                        await self._fill(folder / "ballast", callers, probe)
                        self.fulls += 1
                        self._progress(self.fulls, self._plan.count)
            async with relay.operator() as me:
                return await export.check(record.path, me)

    async def _fill(self, ballast: Path, callers: Callers, probe: Client) -> None:
        await callers.flowing(FLOW_ANSWERS)
        await asyncio.sleep(self._chance.uniform(0, FLOW_SECONDS))
        with _filled(ballast, leave_bytes=self._chance.randint(0, ROOM_BYTES_MAX)):
            await self._until_refused(probe)
            await asyncio.sleep(self._chance.uniform(0, FULL_SECONDS))
            if not await _reads(probe):
                self.wrong.append("the disk was full, and reading was refused")
        await self._until_served(probe)

    async def _until_refused(self, probe: Client) -> None:
        give_up_at = time.monotonic() + WAIT_SECONDS_MAX
        while not isinstance(refusal := await _refusal(probe), StoreFullError):
            if refusal is not None:
                self.wrong.append(f"the disk was full, and a caller was told {refusal.code}")
            if time.monotonic() > give_up_at:
                self.wrong.append("the disk was full, and nobody was told")
                return
            await asyncio.sleep(PROBE_SECONDS)
        self.refusals[refusal.code] += 1

    async def _until_served(self, probe: Client) -> None:
        began = time.monotonic()
        while (refusal := await _refusal(probe)) is not None:
            self.refusals[refusal.code] += 1
            if time.monotonic() > began + WAIT_SECONDS_MAX:
                self.wrong.append("there was room again, and nobody was served")
                return
            await asyncio.sleep(PROBE_SECONDS)
        self.served_again_ms.append((time.monotonic() - began) * 1_000)


# --- a caller that takes no for an answer ---------------------------------------------------------


@asynccontextmanager
async def _probing(relay: RelayProcess) -> AsyncGenerator[Client]:
    token = CredentialsFile(relay.home).read().operator
    no_second_try = Retrying(refused_seconds_max=0)
    transport = HttpTransport(f"{relay.url}/v1", FixedToken(token), policy=no_second_try)
    try:
        yield Client(transport, agent=OPERATOR)
    finally:
        await transport.close()


async def _refusal(probe: Client) -> NodropError | None:
    """Ask for something that takes room; return why it was refused."""
    try:
        await probe.note("is there room? " + "x" * 4_000)
    except UnavailableError as error:
        return error
    return None


async def _reads(probe: Client) -> bool:
    try:
        await probe.call("log", {"limit": 1})
    except UnavailableError:
        return False
    return True


# --- the disk -------------------------------------------------------------------------------------


@asynccontextmanager
async def mounted(folder: Path, *, megabytes: int = MEGABYTES) -> AsyncGenerator[None]:
    """Have a file system of so many megabytes at `folder`.

    Raises:
        NotPermittedError: that is not for us to do.
    """
    folder.mkdir(parents=True)  # noqa: ASYNC240  # nobody waits meanwhile
    await _command("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "nodrop", str(folder))
    try:
        yield
    finally:
        await _command("umount", "--lazy", str(folder))


async def _command(*words: str) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise NotPermittedError(str(error)) from error
    _, complaint = await process.communicate()
    if process.returncode != 0:
        raise NotPermittedError(complaint.decode(errors="replace").strip())


@contextmanager
def _filled(ballast: Path, *, leave_bytes: int) -> Generator[None]:
    """Take all the room there is but `leave_bytes`, and give it back."""
    piece = bytes(64 * 1_024)
    try:
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(piece) == len(piece):
                    pass
            except OSError:
                pass  # that is the last of it
            file.truncate(max(file.tell() - leave_bytes, 0))
        yield
    finally:
        ballast.unlink()
