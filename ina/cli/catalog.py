"""All commands of ``ina`` in the order of its help: where each one is, and its line of help.

A command is imported only when it runs: an import can take up to a second, for which other commands should
not wait.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from ina.quickly import quickly

GROUPS: Final = {
    "cluster": (
        "Simulate jobs that share a cluster's servers, links and switch memory.",
        (
            (
                "simulate",
                "allocation.simulate:simulate",
                "Simulate jobs that share a cluster's links and switch memory, and compare policies.",
            ),
        ),
    ),
    "topo": (
        "Show topologies, and run testbeds of network namespaces; see docs/guides/testbeds.md.",
        (
            ("list", "topo.topology:list_", "List the topologies of the catalog."),
            (
                "show",
                "topo.topology:show",
                "Show the switches, hosts and links of a topology, or print it as a file.",
            ),
            (
                "up",
                "topo.testbed:up",
                "Start a testbed: one network namespace per host and per switch, with P4 switches.",
            ),
            (
                "run",
                "topo.testbed:run",
                "Run jobs on the hosts of a testbed, with gradients summed in its switches.",
            ),
            (
                "exec",
                "topo.testbed:exec_",
                "Run a command in the namespace of a host or a switch, and exit with its status.",
            ),
            (
                "down",
                "topo.testbed:down",
                "Stop a testbed: end its processes, and remove its namespaces and files.",
            ),
            (
                "export",
                "topo.testbed:export",
                "Print a running testbed as a cluster file: its switches, its machines, their ports and "
                "addresses.",
            ),
            ("draw", "topo.topology:draw", "Draw a topology, and the aggregation trees of jobs on it."),
        ),
    ),
    "scenario": (
        "Run scenarios of jobs, faults and checks on any testbed; see docs/guides/scenarios.md.",
        (
            (
                "list",
                "topo.scenario:list_",
                "List the included scenarios, and the files to copy for your own.",
            ),
            (
                "run",
                "topo.scenario:run",
                "Run scenarios one after the other, and check their outcome; exit with status 1 if a check "
                "fails.",
            ),
        ),
    ),
    "schedule": (
        "Simulate and run schedulers of training jobs; see docs/reference/schedulers.md.",
        (
            (
                "simulate",
                "schedule.simulate:simulate",
                "Simulate policies on the same jobs, and compare the results.",
            ),
            (
                "plan",
                "schedule.plan:plan",
                "Show what a policy would run if all jobs had arrived: groups, their interleaving, and "
                "waiting jobs.",
            ),
            (
                "sweep",
                "schedule.simulate:sweep",
                "Simulate policies over several loads and seeds, and print means over the seeds.",
            ),
            (
                "tune",
                "schedule.simulate:tune",
                "Simulate the same jobs with other settings, and keep settings that lower a metric.",
            ),
            ("policies", "schedule.plan:policies", "List the policies by family, and their parameters."),
            (
                "profile",
                "schedule.measured:profile",
                "Measure how the speed of a job depends on its number of CPUs.",
            ),
            (
                "interleave",
                "schedule.measured:interleave",
                "Run groups of training jobs in turns, and compare the speed-up with the prediction.",
            ),
            (
                "live",
                "schedule.live:live",
                "Run jobs when and where a policy decides, with gradients summed in the switch.",
            ),
        ),
    ),
    "bench": (
        "Measure the speed of the switch and of allreduce; see docs/explanations/performance.md.",
        (
            (
                "pipeline",
                "bench.switch:pipeline",
                "Measure aggregation by the compiled program: packets in memory, on one core.",
            ),
            (
                "switch",
                "bench.switch:switch",
                "Measure forwarding by tables of every kind, and table writes over P4Runtime.",
            ),
            (
                "allreduce",
                "bench.allreduce:allreduce",
                "Measure allreduce, or another collective, through sockets and a switch process on loopback.",
            ),
        ),
    ),
}

_RUN, _ALLOT, _SERVE = "Run jobs", "Plan and simulate a cluster", "Serve jobs of many people"
_TRY, _PARTS = "Simulate, test, measure", "Individual components"
COMMANDS: Final = (
    (_RUN, "run", "run:run", "Run training jobs whose gradients are summed inside P4 switches."),
    (_RUN, "admit", "admit:admit", "Admit a job whose workers are started by torchrun, mpirun or srun."),
    (_RUN, "doctor", "machines:doctor", "Examine a cluster, and report each problem with its remedy."),
    (
        _RUN,
        "host",
        "machines:host",
        "Print this machine's lines of a cluster file: its name, interface and addresses.",
    ),
    (
        _RUN,
        "slots",
        "slots:slots",
        "List the jobs that a running switch serves, with their slots, leases and holders.",
    ),
    (_RUN, "remove", "slots:remove", "Remove jobs from a running switch."),
    (_RUN, "counters", "slots:counters", "Read the counters of the program that a running switch has."),
    (_RUN, "registers", "slots:registers", "Read the registers of the program that a running switch has."),
    (
        _RUN,
        "demo",
        "demo:demo",
        "Train on handwritten digits with gradients summed in the switch, and compare with a single process.",
    ),
    (
        _SERVE,
        "controller",
        "service.controller:app",
        "Serve the jobs of many people on a cluster's servers and switches; see docs/guides/controller.md.",
    ),
    (
        _SERVE,
        "submit",
        "service.jobs:submit",
        "Submit jobs to a controller, which decides when, where and with which slots they run.",
    ),
    (_SERVE, "jobs", "service.jobs:jobs", "List the running and the waiting jobs of a controller."),
    (
        _SERVE,
        "show",
        "service.jobs:show",
        "Show a job of a controller: its state, its place, its progress, its predicted end.",
    ),
    (
        _SERVE,
        "explain",
        "service.jobs:explain",
        "Explain why a controller's job runs where it does, waits or has ended.",
    ),
    (
        _SERVE,
        "watch",
        "service.jobs:watch",
        "Watch a controller: every decision with its reason, as it happens.",
    ),
    (_SERVE, "logs", "service.jobs:logs", "Show the output of a rank of a controller's job."),
    (_SERVE, "cancel", "service.jobs:cancel", "Cancel jobs of a controller, whether they run or wait."),
    (_SERVE, "retry", "service.jobs:retry", "Retry a failed job, from its last checkpoint."),
    (
        _SERVE,
        "top",
        "service.cluster:top",
        "Show a controller's switches, servers and jobs, until interrupted.",
    ),
    (
        _SERVE,
        "drain",
        "service.cluster:drain",
        "Drain servers or switches: nothing new starts there, and jobs that use them are moved, or wait.",
    ),
    (
        _SERVE,
        "undrain",
        "service.cluster:undrain",
        "Undrain servers or switches: jobs may use them again.",
    ),
    (_SERVE, "quota", "service.cluster:quota", "Show, set or remove quotas and reservations of tenants."),
    (
        _SERVE,
        "reallocate",
        "service.cluster:reallocate",
        "Divide the memory of the switches now, and print the jobs whose slots changed, with the reason.",
    ),
    (
        _SERVE,
        "reload",
        "service.cluster:reload",
        "Reload a controller's --cluster and --policies files, and print the differences.",
    ),
    (
        _SERVE,
        "audit",
        "service.cluster:audit",
        "Compare a controller's desired state with the state of its switches and servers.",
    ),
    (
        _TRY,
        "sim",
        "sim:sim",
        "Simulate jobs packet by packet, in virtual time, with the real switch program and host library.",
    ),
    (_TRY, "soak", "soak:soak", "Check the invariants under random faults, in virtual time."),
    (
        _TRY,
        "experiment",
        "experiment:experiment",
        "Run the experiment of a Python file, and write its rows, page and plots.",
    ),
    (_ALLOT, "alloc", "allocation.place:alloc", "Divide switch memory among placed jobs."),
    (
        _ALLOT,
        "place",
        "allocation.place:place",
        "Place jobs on servers in one batch, and compute the resulting rates.",
    ),
    (
        _ALLOT,
        "route",
        "allocation.place:route",
        "Choose aggregation trees for placed jobs, and compute the resulting rates.",
    ),
    (_ALLOT, "cluster"),
    (
        _ALLOT,
        "advise",
        "allocation.advise:advise",
        "Recommend scheduler, placement, memory and routing for given jobs and cluster.",
    ),
    (
        _TRY,
        "trace",
        "trace:trace",
        "Analyse captures: a packet's path, slot usage, or the cause of slow iterations.",
    ),
    (_TRY, "topo"),
    (_TRY, "scenario"),
    (_TRY, "schedule"),
    (_TRY, "bench"),
    (_PARTS, "switch", "switch:switch", "Run the embedded switch until interrupted."),
    (
        _PARTS,
        "fallback",
        "fallback:fallback",
        "Run the fallback server, which sums packets without a slot, until standard input ends.",
    ),
    (_PARTS, "compile", "compile:compile_", "Compile a P4 program for the embedded switch."),
    (_PARTS, "stf", "compile:stf", "Send scripted packets through a P4 program, and check its output."),
    (_PARTS, "dissector", "trace:dissector", "Print a Wireshark dissector for INA packets."),
)


def found_at(place: str) -> Any:
    """Import and return the function or group at ``module:name`` in this package."""
    module, _, attribute = place.partition(":")
    module = f"ina.cli.{module}"
    with contextlib.nullcontext() if module in sys.modules else quickly():
        return getattr(importlib.import_module(module), attribute)


def command_of(line: Sequence[str]) -> tuple[Callable[..., Any], Sequence[str]] | None:
    """Return the function of the command that `line` begins with, and the rest of the line.

    Return None for a group without a command, or an unknown name.
    """
    places: dict[tuple[str, ...], str] = {(name,): rest[0] for _, name, *rest in COMMANDS if rest}
    places |= {(group, name): place for group, (_, each) in GROUPS.items() for name, place, _ in each}
    for words in (1, 2):
        if place := places.get(tuple(line[:words])):
            command = found_at(place)
            return (command, line[words:]) if inspect.isfunction(command) else None
    return None
