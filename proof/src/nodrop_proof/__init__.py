"""Proofs of Nodrop: programs that break, simulate, fuzz and measure a relay from the outside.

`nodrop prove` runs them. They are no part of a relay, and no relay imports them.
"""
