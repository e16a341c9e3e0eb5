"""Parts that several tests share: callers and servers to test with, and faults to inject.

Each fault makes some test fail; a control uses it to show that the test can fail.
"""
