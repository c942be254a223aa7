"""The controller as a service on a testbed of namespaces: a trial with faults, and a comparison.

- `jobs`: the cluster and the eight jobs of both;
- `worker`: what their workers run;
- `live`: a testbed, a controller on it, and the faults that they are put through;
- `memory_map`: who has had which slots, recorded from the API and drawn;
- `trial`: ``python -m benchmarks.service.trial``;
- `compare`: ``python -m benchmarks.service.compare``;
- `soak`, `mishaps`: random mishaps for minutes or hours, ``python -m benchmarks.service.soak``;
- `schedules`: what random schedules in virtual time found.
"""
