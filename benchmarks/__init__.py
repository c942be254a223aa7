"""Evidence: makers of the published pages, by many runs each, and speeds that `ina bench` does not measure.

- `pages`: experiments for ``ina experiment``, by name with ``python -m benchmarks.pages``;
- `replicas`: public simulators, digit by digit;
- `schedulers`: policies on traces; `service`: the controller under mishaps; `training`: torch and Horovod;
- `p4`: the compiler and programs for Tofino; `speed`: ``python -m benchmarks.speed``;
- `fill`: their common parts.
"""
