"""Tools for testing a store, or code that uses a relay. Public API.

`clock` has a clock that moves when told to, `play` plays one handoff on the pure machine, `handoffs`
makes handoffs without a relay, and `store_contract` is the suite that every store must pass. Nothing
here is used by a running relay.
"""
