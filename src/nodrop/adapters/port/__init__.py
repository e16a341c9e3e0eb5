"""What all adapters share. Knows the SDK and no framework."""
