"""Handoffs to A2A agents elsewhere."""
