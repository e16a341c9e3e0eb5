"""One agent with a valid token that does everything it may, and what the others notice of it.

`run` starts a relay as a user does, `bystander` measures honest work in a process of its own, `agent`
is the adversary, in another one, and `waves` is what it does. `probed` is the relay.
"""
