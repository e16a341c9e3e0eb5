"""Credentials of the SDK: tokens, keys, joining a team."""
