"""Speed of the parts that `ina bench` leaves out: ``python -m benchmarks.speed NAME [OPTION...]``.

`decisions` has what decides and simulates, `jobs`, `fallback` and `controller` run real processes. Each
command prints its figures as a table, or as one JSON object with ``--json``, as `ina bench` does.
"""
