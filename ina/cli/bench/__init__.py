"""``ina bench``: speed of the switch and of a collective; ``python -m benchmarks.speed`` has the rest."""
