"""Coordination: events, triggers, talk, subscriptions and live findings."""
