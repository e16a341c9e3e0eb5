"""The real engine among random agents and faults, in virtual time, from one seed.

`simulation` runs it; `world` holds what everybody shares: the clock, the store, the relay that
comes and goes on it. `requester`, `worker` and `person` are those who use the relay, `nemesis` is
what goes wrong, and after every step `audit` looks whether each promise is still kept. The same
plan gives the same log, entry by entry.
"""
