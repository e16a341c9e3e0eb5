"""Stores: one package each, strangers to each other. `nodrop.store` is what they have in common."""
