"""Two agents that have never met: one publishes what it can do, the other needs just that.

The requester knows no name. It finds the researcher by a capability and the shape of the result it
needs, agrees on a shorter timeout than the researcher declares, gets the digest of that contract,
hands off under it, and gets the result.
"""

import asyncio
import json
from typing import Any

import nodrop

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


async def research() -> None:
    """Publish the manifest as it is, take one handoff, and do it."""
    async with nodrop.connect("team.db", agent="research-agent-001") as me:
        await me.register(MANIFEST)
        delivery = (await me.call("take", {"wait": "30s"}))["deliveries"][0]
        handoff, attempt = delivery["handoff"]["id"], {"attempt": delivery["attempt"]}
        await me.call("ack", {**attempt, "status": "searching", "eta": "1m"}, handoff=handoff)
        query = delivery["handoff"]["payload"]["query"]
        result = {"sources": ["https://example.com/1"], "summary": f"All there is on {query}."}
        await me.call("complete", {**attempt, "result": result}, handoff=handoff)


async def request() -> None:
    """Find somebody, agree, hand off."""
    async with nodrop.connect("team.db", agent="editor") as me:
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
        print(f"{handoff.recipient}: {result['summary']}")


async def main() -> None:
    await asyncio.gather(research(), request())


if __name__ == "__main__":
    asyncio.run(main())
