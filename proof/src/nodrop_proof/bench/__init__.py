"""Nodrop and its peers do the same durable cycle, side by side, in interleaved rounds of one run.

A system is one module in `systems`; `system` says what it must bring. Each runs as separate
processes (`part`): a server, a worker and a requester, whose callers repeat the cycle (`driving`).
`rounds` runs them in turn, `report` adds up, `page` and `chart` write it down. `growth` and `idle`
measure our own relay alone: on a store with a past, and with many who wait.

Speeds differ between machines, and on a shared one between minutes. What counts is the ratio within
a round.
"""
