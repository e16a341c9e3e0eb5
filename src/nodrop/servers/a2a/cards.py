"""Agent cards: what A2A shows of an agent, made from its manifest, asleep or not."""

from typing import Any, Final

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from nodrop.servers.a2a import parts
from nodrop.servers.a2a.calling.visit import View
from nodrop.servers.a2a.extension import ABOUT, URI

INPUT_MODES: Final = (
    "text/plain",
    "text/markdown",
    "application/json",
    "application/octet-stream",
    "application/pdf",
    "image/png",
    "image/jpeg",
)
OUTPUT_MODES: Final = ("text/plain", "application/json")
ANY_SKILL: Final = "handoff"
"""What a card has where its agent declares nothing: it must have a skill, and this is no capability."""
_BEARER: Final = "bearer"
_FRONT_DESK: Final = (
    "A relay that passes work between agents without dropping it. Name a capability in our "
    "extension, and whoever offers it is asked; or write to an agent at its own address."
)


def card(agent: View, address: str, *, public: bool, grpc: str | None) -> AgentCard:
    """Return the card of an agent whose endpoint is at `address`."""
    manifest = agent["manifest"]
    about = manifest.get("description") or f"{agent['agent_id']}, reached through a Nodrop relay"
    skills = [_skill(capability, manifest) for capability in manifest.get("capabilities") or ()]
    made = AgentCard(
        name=agent["agent_id"],
        description=about,
        version=str(agent["version"] or 1),
        supported_interfaces=_interfaces(address, grpc=grpc, tenant=agent["agent_id"]),
        capabilities=_capabilities(),
        default_input_modes=INPUT_MODES,
        default_output_modes=OUTPUT_MODES,
        skills=skills or [_any_skill(agent["agent_id"], about)],
    )
    return made if public else _guarded(made)


def extended(agent: View, address: str, *, public: bool, grpc: str | None) -> AgentCard:
    """Return the card that authenticated callers see: with what each capability takes and gives."""
    made = card(agent, address, public=public, grpc=grpc)
    declared = {
        capability["name"]: {
            name: capability[name]
            for name in ("input_schema", "output_schema", "timeout_seconds", "reliability_sla")
            if capability.get(name) is not None
        }
        for capability in agent["manifest"].get("capabilities") or ()
    }
    more: dict[str, Any] = {"connected": agent["connected"], "queued": agent["queued"]}
    params = parts.struct(more | ({"capabilities": declared} if any(declared.values()) else {}))
    made.capabilities.extensions[0].params.CopyFrom(params)
    return made


def front_desk(agents: list[View], address: str) -> AgentCard:
    """Return the card of the relay itself, which asks whoever offers a capability."""
    skills: dict[str, AgentSkill] = {}
    for agent in agents:
        for capability in agent["manifest"].get("capabilities") or ():
            skills.setdefault(capability["name"], _skill(capability, agent["manifest"]))
    made = AgentCard(
        name="nodrop",
        description=_FRONT_DESK,
        version="1",
        supported_interfaces=_interfaces(address, grpc=None, tenant=""),
        capabilities=_capabilities(),
        default_input_modes=INPUT_MODES,
        default_output_modes=OUTPUT_MODES,
        skills=list(skills.values()) or [_any_skill("nodrop", "Whatever its agents offer")],
    )
    return _guarded(made)


def _interfaces(address: str, *, grpc: str | None, tenant: str) -> list[AgentInterface]:
    found = [
        AgentInterface(url=f"{address}/", protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=address, protocol_binding="HTTP+JSON", protocol_version="1.0"),
        AgentInterface(url=f"{address}/", protocol_binding="JSONRPC", protocol_version="0.3"),
        AgentInterface(url=address, protocol_binding="HTTP+JSON", protocol_version="0.3"),
    ]
    if grpc is not None:
        binding = AgentInterface(
            url=grpc, protocol_binding="GRPC", protocol_version="1.0", tenant=tenant
        )
        found.insert(2, binding)
    return found


def _capabilities() -> AgentCapabilities:
    return AgentCapabilities(
        streaming=True,
        push_notifications=True,
        extended_agent_card=True,
        extensions=[AgentExtension(uri=URI, description=ABOUT, required=False)],
    )


def _skill(capability: View, manifest: View) -> AgentSkill:
    name = capability["name"]
    return AgentSkill(
        id=name,
        name=name,
        description=capability.get("description") or name,
        tags=[*(capability.get("tags") or ()), *(manifest.get("tags") or ())] or ["handoff"],
    )


def _any_skill(name: str, about: str) -> AgentSkill:
    return AgentSkill(id=ANY_SKILL, name=name, description=about, tags=["handoff"])


def _guarded(made: AgentCard) -> AgentCard:
    scheme = HTTPAuthSecurityScheme(
        scheme="Bearer", description="A token of this relay, or a JWT signed with a key it knows."
    )
    made.security_schemes[_BEARER].CopyFrom(SecurityScheme(http_auth_security_scheme=scheme))
    made.security_requirements.append(SecurityRequirement(schemes={_BEARER: StringList()}))
    return made
