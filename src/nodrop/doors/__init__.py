"""Doors translate bytes to commands and back, and decide nothing.

`http` and `websocket` are ASGI applications, `inprocess` is the same for callers in this process,
and `gate` stands before the first two. Doors do not know each other; `nodrop.app` opens them.
"""
