"""What the standard variables of OpenTelemetry ask for. Needs nothing installed."""

from collections.abc import Mapping
from typing import Final

import msgspec

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_SPOKEN: Final = "http/protobuf"
_GATHER_MS: Final = 5_000
SERVICE: Final = "nodrop"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be exported, and how."""

    traces: bool
    metrics: bool
    service: str | None
    """What the relay is called, unless that was said elsewhere."""
    gather_ms: int
    """How long spans are gathered before they are sent."""
    protocol: str
    """What the collector is to be spoken to with."""

    @property
    def anything(self) -> bool:
        """Whether there is anything to do."""
        return self.traces or self.metrics

    @property
    def spoken(self) -> bool:
        """Whether that is what this relay speaks."""
        return self.protocol == _SPOKEN


def wanted(environment: Mapping[str, str]) -> Wanted:
    """Read the variables."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"

    def wants(signal: str) -> bool:
        somewhere = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") or environment.get(
            _ENDPOINT
        )
        exporter = environment.get(f"OTEL_{signal}_EXPORTER") or "otlp"
        return bool(somewhere) and "otlp" in exporter and not disabled

    named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    delay = environment.get("OTEL_BSP_SCHEDULE_DELAY", "")
    return Wanted(
        traces=wants("TRACES"),
        metrics=wants("METRICS"),
        service=None if named else SERVICE,
        gather_ms=int(delay) if delay.isdecimal() else _GATHER_MS,
        protocol=environment.get(_PROTOCOL) or _SPOKEN,
    )
