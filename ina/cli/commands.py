"""All commands of ``ina``, in the order of its help."""

from __future__ import annotations

from typing import Annotated

import typer

from ina.cli.register import group, register

app = group(
    "ina",
    "Aggregate gradients of training jobs inside P4 switches.",
    epilog="Exit codes: 0 success, 1 the work failed, 2 wrong usage, 3 compile error, 4 internal "
    "error, 128+N ended by signal N.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # a quarter of the start, for one option

        print(f"ina {version('ina')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


def _add(panel: str, name: str, place: str, line: str) -> None:
    register(app, name, f"ina.cli.{place}", line, panel=panel)


_RUN, _ALLOT, _SERVE = "Run jobs", "Plan and simulate a cluster", "Serve jobs of many people"
_TRY, _PARTS = "Simulate, test, measure", "Individual components"
_add(_RUN, "run", "run:run", "Run training jobs whose gradients are summed inside P4 switches.")
_add(_RUN, "admit", "admit:admit", "Admit a job whose workers are started by torchrun, mpirun or srun.")
_add(_RUN, "doctor", "doctor:doctor", "Examine a cluster, and say what to mend.")
_add(
    _RUN,
    "host",
    "host:host",
    "Print this machine's lines of a cluster file: its name, interface and addresses.",
)
_add(
    _RUN,
    "slots",
    "slots:slots",
    "List the jobs that a running switch serves, with their slots, leases and holders.",
)
_add(_RUN, "remove", "remove:remove", "Remove jobs from a running switch.")
_add(_RUN, "counters", "counters:counters", "Read the counters of the program that a running switch has.")
_add(_RUN, "registers", "registers:registers", "Read the registers of the program that a running switch has.")
_add(
    _RUN,
    "demo",
    "demo:demo",
    "Train on handwritten digits with gradients summed in the switch, and compare with a single process.",
)
_add(
    _SERVE,
    "controller",
    "controller:app",
    "Serve the jobs of many people on the servers and switches of a cluster; see docs/controller.md.",
)
for _name, _line in (
    ("submit", "Submit jobs to a controller, which decides when, where and with which slots they run."),
    ("jobs", "List the jobs of a controller: who runs, who waits and why."),
    ("show", "Show a job of a controller: its state, its place, its progress, its predicted end."),
    ("explain", "Explain why a controller's job runs where it does, waits or has ended."),
    ("watch", "Watch a controller: every decision with its reason, as it happens."),
    ("logs", "Show what a rank of a controller's job wrote."),
    ("cancel", "Cancel jobs of a controller, whether they run or wait."),
    ("retry", "Retry a failed job, from its last checkpoint."),
    ("top", "Show a controller's switches, servers and jobs, until interrupted."),
    (
        "drain",
        "Drain servers or switches: nothing new starts there, and jobs that use them are moved, or wait.",
    ),
    ("undrain", "Let servers or switches that were drained be used again."),
    ("quota", "Show, set or remove quotas and reservations of tenants."),
    ("reallocate", "Divide the memory of the switches now, and print which jobs have other slots, and why."),
    ("reload", "Have a controller read its --cluster and --policies files again, and print what differs."),
    ("audit", "Compare what a controller intends with what switches and servers hold."),
):
    _add(_SERVE, _name, f"service.{_name}:{_name}", _line)
_add(
    _TRY,
    "sim",
    "sim:sim",
    "Simulate jobs packet by packet, in virtual time, with the real switch program and host library.",
)
_add(
    _TRY,
    "soak",
    "soak:soak",
    "Check the invariants under random faults, in virtual time.",
)
_add(
    _TRY,
    "experiment",
    "experiment:experiment",
    "Run the experiment of a Python file, and write its rows, page and plots.",
)
_add(_ALLOT, "alloc", "allocation.alloc:alloc", "Divide switch memory among placed jobs.")
_add(
    _ALLOT,
    "place",
    "allocation.place:place",
    "Place jobs on servers in one batch, and compute the resulting rates.",
)
_add(
    _ALLOT,
    "route",
    "allocation.route:route",
    "Choose aggregation trees for placed jobs, and compute the resulting rates.",
)
_add(
    _ALLOT,
    "cluster",
    "cluster:app",
    "Simulate jobs that share a cluster's servers, links and switch memory.",
)
_add(
    _ALLOT,
    "advise",
    "advise:advise",
    "Recommend scheduler, placement, memory and routing for given jobs and cluster.",
)
_add(
    _TRY,
    "trace",
    "trace:trace",
    "Analyse captures: a packet's path, slot usage, or the cause of slow iterations.",
)
_add(
    _TRY,
    "topo",
    "topo:app",
    "Show topologies, and run testbeds of network namespaces; see docs/testbeds.md.",
)
_add(
    _TRY,
    "scenario",
    "scenario:app",
    "Run scenarios of jobs, faults and checks on any testbed; see docs/testbeds.md.",
)
_add(_TRY, "schedule", "schedule:app", "Simulate and run schedulers of training jobs; see docs/schedulers/.")
_add(_TRY, "bench", "bench:app", "Measure the speed of the switch and of allreduce; see docs/performance.md.")
_add(_PARTS, "switch", "switch:switch", "Run the embedded switch until interrupted.")
_add(
    _PARTS,
    "fallback",
    "fallback:fallback",
    "Run the fallback server, which sums what the switches had no slot for, until standard input ends.",
)
_add(_PARTS, "compile", "compile:compile_", "Compile a P4 program for the embedded switch.")
_add(_PARTS, "stf", "stf:stf", "Send scripted packets through a P4 program, and check what comes out.")
_add(_PARTS, "dissector", "dissector:dissector", "Print a Wireshark dissector for INA packets.")
