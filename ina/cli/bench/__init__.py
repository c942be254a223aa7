"""``ina bench``: how fast the parts are, ratios measured in one run."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("bench", "Measure the speed of each part and of the whole; see docs/performance.md.")


def _add(name: str, line: str) -> None:
    register(app, name, f"ina.cli.bench.{name}:{name}", line)


_add("pipeline", "Measure aggregation by the compiled program: packets in memory, on one core or several.")
_add("switch", "Measure forwarding by tables of every kind, and table writes over P4Runtime.")
_add(
    "allreduce",
    "Measure allreduce, or another collective, through sockets and a switch process on loopback.",
)
_add("jobs", "Compare the throughput of one switch process with several concurrent jobs and with one job.")
_add(
    "fallback",
    "Measure how many contributions the fallback server sums per second of its own processor time.",
)
_add("grouping", "Measure grouping: match jobs of random stage times in rounds, as Muri does.")
_add("waterfill", "Measure water-filling: rates of jobs with two to eight servers on a leaf-spine.")
_add(
    "placement", "Measure placement: jobs of 2 to 64 workers on an empty leaf-spine with racks of 40 servers."
)
_add("routing", "Measure tree selection on a fat-tree; default: 80 switches and 192 servers, as in GRID.")
_add("simulation", "Measure virtual time: packet hops a second of jobs and flows on a fat tree.")
_add("controller", "Measure a controller of ten switches (processes, over P4Runtime), asked over HTTP.")
_add("schedulers", "Measure schedulers on long traces and a cluster of 256 servers: processor time.")
_add("cluster", "Measure the simulation of a cluster's network; default: 10,000 jobs on 256 servers.")
