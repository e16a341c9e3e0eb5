"""Two agents that have never met: one publishes what it can do, the other needs just that.

Each joins with a key of its own. The requester knows no name: it finds the researcher by a
capability and the shape of the result it needs, agrees on a shorter timeout than the researcher
declares, gets the digest of that contract, hands off under it, and verifies who signed the result.
"""

import asyncio
import json
import secrets
import tempfile
from pathlib import Path
from typing import Any

import nodrop
from nodrop import app

MANIFEST: dict[str, Any] = json.loads("""
{
  "agent_id": "research-agent-001",
  "capabilities": [
    {
      "name": "web_research",
      "input_schema": {"query": "string", "depth": "int"},
      "output_schema": {"sources": "array", "summary": "string"},
      "timeout_seconds": 300,
      "reliability_sla": 0.95
    }
  ],
  "discovery_endpoint": "https://agent-registry.example.com/research-agent-001"
}
""")


async def research(url: str, home: Path) -> None:
    """Publish the manifest as it is, take one handoff, and do it."""
    async with nodrop.connect(url, agent="research-agent-001", home=home) as me:
        await me.register(MANIFEST)
        delivery = (await me.call("take", {"wait": "30s"}))["deliveries"][0]
        handoff, attempt = delivery["handoff"]["id"], {"attempt": delivery["attempt"]}
        await me.call("ack", {**attempt, "status": "searching", "eta": "1m"}, handoff=handoff)
        query = delivery["handoff"]["payload"]["query"]
        result = {"sources": ["https://example.com/1"], "summary": f"All there is on {query}."}
        await me.call("complete", {**attempt, "result": result}, handoff=handoff)


async def request(url: str, home: Path, introduced: dict[str, str]) -> None:
    """Find somebody, agree, hand off, verify."""
    async with nodrop.connect(url, agent="editor", home=home) as me:
        sends, needs = {"query": "string", "depth": "int"}, {"summary": "string"}
        after = 0
        while not (matches := await me.find("web_research", input=sends, output=needs)):
            for entry in await me.log(after, wait="30s", type="agent.registered.v1"):
                after = entry.seq  # somebody published something: look again
        found = matches[0]
        offering = found.offers[0]
        print(f"found {found.agent_id}: input {offering.input}, output {offering.output}")
        print(f"claims {offering.claimed.reliability_sla}, observed: {offering.observed.says}")

        contract = await me.contract("web_research", timeout="2m", input=sends, output=needs)
        declared = MANIFEST["capabilities"][0]["timeout_seconds"]
        print(f"agreed on {contract.timeout} instead of {declared} s")
        print(f"under {contract.digest[:13]}…")

        payload = {"query": "handoffs", "depth": 2}
        handoff = await me.hand_off(contract=contract, payload=payload)
        assert handoff.view["contract_digest"] == contract.digest
        result = await handoff.result(wait="30s")
        await handoff.verify(introduced[handoff.recipient])  # raises unless it signed just that
        print(f"{handoff.recipient}, verified: {result['summary']}")


async def main() -> None:
    """Start a relay, let two agents join with keys of their own, and bring them to work."""
    home = Path(tempfile.mkdtemp())
    async with app.open_relay(":memory:", home=home) as relay, app.listening(relay) as url:
        secret = secrets.token_urlsafe()
        await relay.ensure_token("default", agent="me", role="operator", secret=secret)
        introduced: dict[str, str] = {}  # public keys, as they went from hand to hand at the start
        async with nodrop.connect(url, token=secret) as operator:
            for agent in ("research-agent-001", "editor"):
                invitation = await operator.invite(agent)
                await nodrop.join(invitation, address=url, home=home / agent)
                introduced[agent] = (await operator.keys(agent))[0].public_key
            await operator.set_policy(signatures="required")
        await asyncio.gather(
            research(url, home / "research-agent-001"), request(url, home / "editor", introduced)
        )


if __name__ == "__main__":
    asyncio.run(main())
