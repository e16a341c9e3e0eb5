"""Stores: one package each, strangers to each other. `nodrop.log.port` is what they have in common."""
