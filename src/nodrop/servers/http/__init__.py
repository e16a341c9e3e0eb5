"""HTTP: the operations of `protocol.operations` below `/v1/`, and a few pages about the relay."""
