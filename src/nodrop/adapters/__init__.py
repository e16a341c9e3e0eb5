"""Agent frameworks at a relay: each can serve what it does, and hand off what it does not.

One module per framework, on the SDK and that framework's public API; each needs the extra of its
name. What they have in common is `port`. Loading this package loads no framework.

    await nodrop.adapters.langgraph.serve(graph, agent="planner")
    tool = nodrop.adapters.langgraph.hand_off_tool(to="planner")

`current()` tells code inside of any of them which handoff it works on.
"""

from nodrop.adapters.port.current import Current, current

__all__ = ["Current", "current"]
