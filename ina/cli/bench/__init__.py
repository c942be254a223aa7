"""``ina bench``: measures the switch and collectives; ``python -m benchmarks.speed`` measures other parts."""
