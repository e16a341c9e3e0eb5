"""Handoffs: offers, commands, what follows from them, and looking at them."""
