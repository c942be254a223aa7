"""All commands of ``ina``, in the order of its help."""

from __future__ import annotations

from typing import Annotated

import typer

from ina.cli.register import group, register

app = group(
    "ina",
    "In-network aggregation: gradients summed inside a P4 switch.",
    epilog="Exit codes: 0 done, 1 the work failed, 2 usage, 3 compile error, 4 internal error; "
    "128 and more: ended by a signal.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # a quarter of the start, for one option

        print(f"ina {version('ina')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    pass


def _add(panel: str, name: str, place: str, line: str) -> None:
    register(app, name, f"ina.cli.{place}", line, panel=panel)


_RUN, _ALLOT = "Run jobs", "Decide who gets what, on files"
_TRY, _PARTS = "Simulate, test, measure", "Parts by themselves"
_add(_RUN, "run", "run:run", "Run training jobs whose gradients are summed inside P4 switches.")
_add(_RUN, "admit", "admit:admit", "Admit a job whose workers somebody else starts: torchrun, mpirun, srun.")
_add(_RUN, "jobs", "switch_jobs:jobs", "List the jobs that a switch serves, whoever had them admitted.")
_add(_RUN, "remove", "remove:remove", "Take jobs off a switch, whoever had them admitted.")
_add(
    _RUN,
    "demo",
    "demo:demo",
    "Train on handwritten digits with every gradient summed in the switch, then compare.",
)
_add(
    _TRY,
    "sim",
    "sim:sim",
    "Run jobs in virtual time: links, queues and computing are simulated, packet by packet.",
)
_add(
    _TRY,
    "soak",
    "soak:soak",
    "Check the invariants over random schedules of everything at once, in virtual time.",
)
_add(
    _TRY,
    "experiment",
    "experiment:experiment",
    "Make a page of docs/results: run its sweep in virtual time, write rows, tables and plots.",
)
_add(
    _ALLOT, "alloc", "allocation.alloc:alloc", "Divide the slots of the switches among jobs that are placed."
)
_add(
    _ALLOT,
    "place",
    "allocation.place:place",
    "Place jobs on servers, all at once, and compute the rates that they come to.",
)
_add(
    _ALLOT,
    "route",
    "allocation.route:route",
    "Choose aggregation trees for jobs that are placed, and compute the rates that they come to.",
)
_add(
    _ALLOT,
    "cluster",
    "cluster:app",
    "Simulate jobs that contend for a cluster's servers, links and slots.",
)
_add(
    _ALLOT,
    "explain",
    "allocation.explain:explain",
    "Say why a job got its slots, its servers, its tree or its time: what bound it, what more would bring.",
)
_add(
    _TRY,
    "trace",
    "trace:trace",
    "Show a packet's life, who held the slots, what made a run slow, or what there is to look at.",
)
_add(
    _TRY,
    "topo",
    "topo:app",
    "Topologies, and testbeds of namespaces that have their shape; see docs/testbeds.md.",
)
_add(
    _TRY,
    "scenario",
    "scenario:app",
    "Scenarios: jobs, faults and checks as data, on any runner; see docs/testbeds.md.",
)
_add(_TRY, "schedule", "schedule:app", "Simulate schedulers of training jobs; see docs/schedulers/.")
_add(_TRY, "bench", "bench:app", "Measure the parts alone and together; see docs/performance.md.")
_add(_PARTS, "switch", "switch:switch", "Run the embedded switch until interrupted.")
_add(
    _PARTS,
    "fallback",
    "fallback:fallback",
    "Sum what finds no room in the switches, and answer what was lost, until standard input ends.",
)
_add(_PARTS, "compile", "compile:compile_", "Compile a P4 program for the embedded switch.")
_add(_PARTS, "stf", "stf:stf", "Send a script of packets through a P4 program, and check what leaves.")
_add(_PARTS, "dissector", "dissector:dissector", "Print a dissector of INA packets for Wireshark.")
