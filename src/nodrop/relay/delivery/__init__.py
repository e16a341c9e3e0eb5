"""Delivery: consumers, credit, leases and queues."""
