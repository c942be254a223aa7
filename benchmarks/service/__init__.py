"""The controller as a service on a testbed of namespaces: random mishaps, and a comparison with a simulation.

- `worker`: what the workers of jobs run;
- `live`: a testbed, a controller on it, and the faults that they are put through;
- `compare`: ``python -m benchmarks.service.compare``;
- `soak`, `mishaps`: random mishaps for minutes or hours, ``python -m benchmarks.service.soak``.
"""
