"""The MCP door: a relay as tools for a coding agent. Translates and nothing else.

`toolset` is what the tools do, over any way to a relay; `server` speaks MCP around it, `lines` on
standard input and output, `door` and `sessions` over HTTP. Only `server`, `lines` and `sessions`
need the extra `nodrop[mcp]`.
"""
