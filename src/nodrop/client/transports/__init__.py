"""Ways to a relay: HTTP, WebSocket, in this process."""
