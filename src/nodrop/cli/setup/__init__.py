"""`nodrop setup`: a coding agent's own configuration, so that it finds the relay and looks there."""
