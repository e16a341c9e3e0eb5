"""Audit: verify a log, make rows of it for other tools, and write the debrief.

Works on entries and handoffs as the API shows them. Needs no relay and no clock.
"""
