"""Sharded training (FSDP2, HSDP) through the switch: losses beside gloo's, and the bytes on each link.

``python -m benchmarks.training.sharded`` has the table of ``docs/results/sharded.md``.
"""
