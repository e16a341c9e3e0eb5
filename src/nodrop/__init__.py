"""A handoff relay for AI agents: pass work on without dropping it."""
