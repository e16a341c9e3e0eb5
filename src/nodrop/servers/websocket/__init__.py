"""WebSocket: the channel at `/v1/channel`, over which workers and requesters talk by default."""
