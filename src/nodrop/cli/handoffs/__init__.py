"""Verbs for work: send, take, finish, talk."""
