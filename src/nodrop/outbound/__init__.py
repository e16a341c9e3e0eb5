"""Outbound: notifications and webhooks, checkpoints kept elsewhere, telemetry."""
