"""Measurements of the switch and of collectives, for `ina bench` and `ina schedule interleave`.

- `pipeline`, `switch`: packets through a compiled program in memory (`frame_loop`); `veth`: frames through a
  switch process;
- `allreduce`: the program that each rank of `ina bench allreduce` runs; `baselines`: processes of other
  libraries, for comparison; `turns`: lets the libraries measure in turns;
- `interleave`: the speed of groups of real jobs compared with its prediction, and the speed of a job by its
  number of CPUs.

This package uses the other packages through their public modules (docs/explanations/architecture.md). It
prints nothing; the commands print. All other measurements are in ``benchmarks/``, which is not installed.
"""
