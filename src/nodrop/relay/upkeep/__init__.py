"""Upkeep: backups, checkpoints, retention, searching the log, figures."""
