"""``ina topo``: topologies, and testbeds made from them."""

from __future__ import annotations

from ina.cli.register import group, register

app = group("topo", "Show topologies, and run testbeds of network namespaces; see docs/testbeds.md.")


def _add(name: str, line: str) -> None:
    register(app, name, f"ina.cli.topo.{name}:{name}_", line)


_add("list", "List the topologies of the catalog.")
_add("show", "Show the switches, hosts and links of a topology, or print it as a file.")
_add(
    "up",
    "Start a testbed: one network namespace per host and per switch, with P4 switches.",
)
_add("run", "Run jobs on the hosts of a testbed, with gradients summed in its switches.")
_add("exec", "Run a command in the namespace of a host or a switch, and exit with its status.")
_add("down", "Stop a testbed: end its processes, and remove its namespaces and files.")
_add(
    "export",
    "Print a running testbed as a cluster file: its switches, its machines, their ports and addresses.",
)
_add("draw", "Draw a topology, and the aggregation trees of jobs on it.")
