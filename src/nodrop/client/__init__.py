"""The SDK: requesters and workers, over WebSocket, HTTP or in-process.

It knows the wire and nothing of the relay. `nodrop` itself re-exports what people use.
"""
