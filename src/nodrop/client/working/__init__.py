"""The worker: deliveries, handlers, leases."""
