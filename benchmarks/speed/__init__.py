"""Speed of the parts that `ina bench` omits: ``python -m benchmarks.speed NAME [OPTION...]``.

`decisions` measures schedulers and simulators; `fallback` and `controller` run real processes. Each
command prints its figures as a table, or as one JSON object with ``--json``, as `ina bench` does.
"""
