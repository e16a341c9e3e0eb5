"""`nodrop verify`: whether a log holds, found out without trusting the relay that kept it.

Works on entries and bodies as the API gives them, or as somebody saved them. Needs no relay, no
store and no clock.
"""
