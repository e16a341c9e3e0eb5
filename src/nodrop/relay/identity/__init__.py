"""Identity: who calls, by which key, token or link, and what that allows."""
