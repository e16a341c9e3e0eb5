"""support_agent of the demo: has the last look before the customer hears."""

from typing import Any

import nodrop

agent = nodrop.Agent("support_agent", description="Reviews what customers are told")


@agent.capability("final_review")
async def final_review(result: dict[str, Any]) -> dict[str, Any]:
    """Approve a response, or send it back."""
    if "Friday" not in result["text"]:
        raise nodrop.Fail("a customer is told when")
    return {"approved": True, **result}


if __name__ == "__main__":
    agent.run(heartbeat_seconds=0.5)
