"""What a user runs to see the guarantees hold. Reads what a relay shows; is no part of one."""
