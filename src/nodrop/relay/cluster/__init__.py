"""The cluster: several nodes on one store."""
