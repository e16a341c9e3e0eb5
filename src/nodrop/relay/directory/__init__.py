"""The directory: agents, their manifests, and who is asked for a capability."""
