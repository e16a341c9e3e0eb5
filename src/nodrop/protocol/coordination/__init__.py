"""Coordination on the wire: talk, triggers, subscriptions."""
