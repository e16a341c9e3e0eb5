"""The tool that talks: informal words, and statuses for everybody whom a handoff concerns."""

from nodrop.servers.mcp import tools
from nodrop.servers.mcp.desk import Desk, given
from nodrop.servers.mcp.wording import lines


async def say(desk: Desk, said: tools.Say) -> str:
    """Say something, or tell a status."""
    if said.status is not None:
        fields = given(status=said.status, text=said.text, about=said.handoff)
        told = await desk.call("tell_status", fields)
    else:
        fields = given(text=said.text, to=said.to, thread=said.thread, about=said.handoff)
        told = await desk.call("say", fields)
    heard = ", ".join(told["to"]) or "nobody yet"
    thread = f'Next: say(thread="{told["thread"]}") goes on there.' if told["thread"] else None
    return lines(f"said at {told['seq']} to {heard}", thread)
