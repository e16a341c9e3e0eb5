"""Detectors: one module per question that is asked of a record. None knows another."""
