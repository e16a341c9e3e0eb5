"""Publishing a manifest that somebody wrote: for agents whose code does not say what they can do."""

from typing import Annotated, Any, Final, cast

import msgspec
import typer

from nodrop.cli import screen
from nodrop.cli.session import Session
from nodrop.cli.values import decode, file_text
from nodrop.model.errors import InvalidRequestError, Problem

_AGENT: Final = "agent_id"


async def agents_publish(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A manifest in JSON; - is stdin.")],
) -> None:
    """Publish what an agent can do, from a manifest in a file, kept byte for byte."""
    written = file_text(file)
    manifest = decode(written, path=file)
    said = cast("dict[str, Any]", manifest) if isinstance(manifest, dict) else {}
    agent = said.get(_AGENT)
    if not isinstance(agent, str) or not agent:
        problem = Problem(path=_AGENT, message="expected the name of the agent")
        raise InvalidRequestError("it is not a manifest", errors=(problem,))
    session.act_as(agent)
    fields = {"manifest": msgspec.Raw(written.encode())}
    answer = await session.call("register", fields, name=agent)
    session.show(answer, lambda: _show(answer["agent"]))


def _show(agent: dict[str, Any]) -> None:
    offered = [capability["name"] for capability in agent["manifest"].get("capabilities") or ()]
    offers = f"offers {', '.join(offered)}" if offered else "offers nothing in particular"
    screen.success("", (agent["agent_id"], "bold"), f" {offers}")
