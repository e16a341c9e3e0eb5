"""OpenTelemetry: what happened in a relay, as spans and metrics for a collector."""
