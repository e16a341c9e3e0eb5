"""What can be learnt from a log after the fact: rows for other tools, and the debrief.

Works on entries and handoffs as the API shows them. Needs no relay and no clock.
"""
