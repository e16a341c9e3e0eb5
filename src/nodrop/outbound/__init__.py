"""What goes out: outlets, checkpoints kept elsewhere, telemetry."""
