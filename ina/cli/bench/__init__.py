"""``ina bench``: how fast the parts are, ratios measured in one run."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("bench", "Measure the parts alone and together; see docs/performance.md.")


def _add(name: str, line: str) -> None:
    register(app, name, f"ina.cli.bench.{name}:{name}", line)


_add("pipeline", "Aggregation packets through the compiled program, in memory, on one core.")
_add(
    "switch",
    "Forwarding on one core by tables of every kind, table writes over P4Runtime, and real interfaces.",
)
_add(
    "allreduce",
    "Allreduce through real sockets and the switch process on loopback; the median of the iterations.",
)
_add("jobs", "Gradients per second through one switch process: several jobs at once against one job alone.")
_add("fallback", "Contributions through the fallback server process; what counts is its own processor time.")
_add("grouping", "Group jobs of random stage times by rounds of matching, as Muri does.")
_add("waterfill", "Compute the rates of jobs of two to eight servers on a leaf-spine.")
_add("placement", "Place a batch of jobs of 2 to 64 workers on an empty leaf-spine with racks of 40 servers.")
_add(
    "routing",
    "Choose trees on a fat-tree: of 80 switches and 192 servers unless told otherwise, as GRID's.",
)
_add("cluster", "Simulate jobs on a cluster's network: 10,000 on 256 servers unless told otherwise.")
