"""The listener: the socket under the networked doors, and the connections it has open."""
