"""``ina bench``: how fast the switch and a collective are; ``python -m benchmarks.speed`` has all else."""
