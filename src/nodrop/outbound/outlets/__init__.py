"""Outlets: what comes into an inbox, sent on to where its agent, or a person, is."""
