"""The controller as a service on a testbed of namespaces: random mishaps, and a comparison with a simulation.

- `worker`: the program of jobs' workers;
- `live`: a testbed, a controller on it, and their faults;
- `compare`: ``python -m benchmarks.service.compare``;
- `soak`, `mishaps`: random mishaps for minutes or hours, ``python -m benchmarks.service.soak``.
"""
