"""HTTP: the operations of `wire.operations` below `/v1/`, and a few pages about the relay."""
