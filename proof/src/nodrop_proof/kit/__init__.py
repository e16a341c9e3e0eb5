"""Parts that proofs are built from: real servers to start, and faults to inject.

Each fault makes some proof fail; a control uses it to show that the proof can fail.
"""
