"""Verbs for the team: agents, keys, triggers, notifications."""
