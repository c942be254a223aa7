"""``ina topo``: topologies, and testbeds that have their shape."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("topo", "Topologies, and testbeds of namespaces that have their shape; see docs/testbeds.md.")


def _add(name: str, line: str) -> None:
    register(app, name, f"ina.cli.topo.{name}:{name}_", line)


_add("list", "List the topologies of the catalog.")
_add("show", "Show a topology: its switches, hosts and links; --yaml writes it down to be changed.")
_add(
    "up",
    "Bring up a testbed: a network namespace per host and per switch, with a P4 switch in these.",
)
_add("run", "Run a job on all hosts of a testbed, its gradients summed in the testbed's switches.")
_add("exec", "Run a command in the namespace of a host or a switch; its exit status becomes this command's.")
_add("down", "Take a testbed down: its processes end, its namespaces and files are removed.")
_add("draw", "Draw a topology, and the aggregation trees of jobs on it.")
