"""inbox_monitor of the demo: turns what was found into words for the customer."""

from typing import Any

import nodrop

agent = nodrop.Agent("inbox_monitor", description="Reads the mail")


@agent.capability("customer_response")
async def customer_response(result: dict[str, Any], origin: dict[str, Any]) -> dict[str, str]:
    """Write a customer-ready response."""
    words = f"We found the cause: {result['cause']}. It will be fixed by {result['timeline']}."
    return {"to": origin["customer"], "ticket": result["ticket"], "text": words}


if __name__ == "__main__":
    agent.run(heartbeat_seconds=0.5)
