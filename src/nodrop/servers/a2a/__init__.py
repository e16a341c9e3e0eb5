"""The A2A door: every agent of a relay as an A2A agent. Translates and nothing else.

A task is a handoff, a context is a correlation id, and the log is what is streamed and pushed. The
official SDK's wire layers are used (types, routes, 0.3 compatibility, card signing), its execution
engine and task store are not. `door` is what a request meets, `application` the SDK's routes,
`handler` the methods; `courier` goes the other way, to agents that live elsewhere. Only `door` does
without the extra `nodrop[a2a]`.
"""
