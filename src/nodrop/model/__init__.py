"""What a handoff is and how it may change. Pure: no I/O, no clock, no randomness.

Read in this order: `model` (nouns), `commands` and `events` (what may be asked, what happened),
`machine` (the table and the two functions), `clocks` (the one due time), `errors`.
"""
