"""Doors translate bytes to commands and back, and decide nothing.

`http`, `websocket`, `mcp` and `a2a` are ASGI applications behind one `gate`, which `listener` serves;
`inprocess` is the same for callers in this process. `outlets` and `telemetry` lead outwards: what
waits for people, and what collectors are told. Doors do not know each other; `nodrop.app` opens
them.
"""
