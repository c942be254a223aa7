"""The controller as a service on a testbed of namespaces: a trial with faults, and a comparison.

- `jobs`: the cluster and the eight jobs of both;
- `worker`: what their workers run;
- `live`: a testbed, a controller on it, and the faults that they are put through;
- `memory_map`: who has had which slots, recorded from the API and drawn;
- `trial`: ``python -m benchmarks.service.trial``;
- `compare`: ``python -m benchmarks.service.compare``;
- `mixes`, `ablations`, `reallocation`, `reallocation_page`: memory policies on real links,
  ``python -m benchmarks.service.reallocation``.
"""
