"""Runs commands: gathers those that arrive together, decides, and commits them as one.

Read in this order: `engine` (group commit), `batch` (the working set of one commit), `relay`
(everything a door may ask for). The rest are the engine's parts, each a noun.
"""
