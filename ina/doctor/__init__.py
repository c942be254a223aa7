"""Findings of ``ina doctor`` and ``ina host`` on machines, and on a job on them."""
