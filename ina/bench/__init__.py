"""Measurements of the parts, alone and together: what `ina bench` and `ina schedule interleave` run.

- `pipeline`: aggregation packets through a compiled program, in memory;
- `allreduce`, `jobs`: the programs of their workers, and the evaluation of their times;
- `loopback`: their lower bound, bytes that are only copied;
- `fallback`: the fallback server process;
- `grouping`: jobs grouped by how their stages interleave;
- `interleave`: groups of real jobs, compared with their predictions.

A composing room: it runs the other packages by their public modules (docs/architecture.md). Nothing here
prints; the commands do. What makes pages of many runs is in ``benchmarks/``, which is not installed.
"""
