"""Measurements of the switch and of collectives, for `ina bench` and `ina schedule interleave`.

- `pipeline`, `switch`: packets through a compiled program, in memory, and through a switch process (`veth`);
- `allreduce`, `baselines`, `turns`: the program of its ranks, other libraries' processes, their turns;
- `interleave`, `cpu_counts`: groups of real jobs beside their predictions, and a job on more or fewer CPUs.

A composing package: it runs the other packages by their public modules (docs/explanations/architecture.md).
Nothing here
prints; the commands do. Pages of many runs, and all other measurements, are made in ``benchmarks/``, which is
not installed.
"""
