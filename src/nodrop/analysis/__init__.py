"""Analysis of a log: what emerges among many agents, and what went wrong between them.

Works on entries as the API shows them and on logs of other systems. Needs no relay and no clock.
"""
