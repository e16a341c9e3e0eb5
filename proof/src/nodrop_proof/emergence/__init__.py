"""Emergence: labelled logs to hold the analysis to, and the evaluations that do.

`nodrop prove emergence evaluate` makes logs and prints precision and recall; `real` takes public data
by path. Nothing here is part of the product.
"""
