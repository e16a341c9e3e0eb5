"""The requester's side of Restate, against an ingress that is played here."""

from aiohttp import web
from aiohttp.test_utils import TestServer

from nodrop_proof.bench.system import Load, load

KEYS_UNKNOWN = 2
"""How often the ingress has not heard of the worker yet."""


class Ingress:
    """Answers as Restate does: 404 until a deployment has the service, then the handler's result."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers["Idempotency-Key"])
        if len(self.keys) <= KEYS_UNKNOWN:
            return web.json_response({"message": "service 'handoffs' not found"}, status=404)
        return web.json_response({"for": (await request.json())["key"]})


async def test_a_cycle_waits_for_the_worker_and_carries_its_key() -> None:
    ingress = Ingress()
    application = web.Application()
    application.router.add_post("/handoffs/answer", ingress.answer)
    async with TestServer(application) as served:
        address = f"{served.make_url('/')} http://127.0.0.1:1"  # nothing is asked of the admin API
        async with load("restate").requester(address, Load(callers=2)) as cycle:
            assert len(ingress.keys) == KEYS_UNKNOWN + 1
            assert callable(cycle)
            assert await cycle("k-1", {"key": "k-1", "text": ""}) == {"for": "k-1"}
    assert ingress.keys[-1] == "k-1"
    assert len(set(ingress.keys)) == KEYS_UNKNOWN + 2
