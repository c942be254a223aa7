"""All commands of ``ina`` in the order of its help, and their translation for typer.

Each command is registered with its name and one line of help, and imported only when it runs: an import can
take up to a second, for which other commands should not wait.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ina.cli.declared import check_path, flattened
from ina.quickly import quickly


class Group(TyperGroup):
    """A group of subcommands that were registered with `register`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the subcommand that `args` name, after its import."""
        name, command, rest = super().resolve_command(ctx, args)
        if name and command and command.callback:
            command = load(name, inspect.unwrap(command.callback).place)
        return name, command, rest


def group(name: str, text: str, epilog: str | None = None) -> typer.Typer:
    """Return a group of subcommands; `text` and `epilog` are its help."""
    made = typer.Typer(
        name=name,
        cls=Group,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        help=text,
        epilog=epilog,
    )
    made.callback()(_nothing)  # without a callback, typer replaces a group of one command by this command
    return made


def _nothing() -> None:
    """Do nothing: typer calls this before a subcommand of a group."""


def register(
    app: typer.Typer, name: str, place: str | typer.Typer, line: str, *, panel: str | None = None
) -> None:
    """Add a subcommand, which is imported only when it runs.

    Args:
        app: the group to which the subcommand belongs.
        name: name of the subcommand on the command line.
        place: ``module:function`` or ``module:group`` in this package, or a group; a function's docstring is
            the subcommand's help.
        line: the subcommand's line on the group's help page: the first paragraph of its docstring.
        panel: the heading on that page under which the line is.
    """

    def later() -> None:
        """Do nothing: a placeholder for the command until it is imported."""

    later.place = place  # type: ignore[attr-defined]
    app.command(name, help=line, rich_help_panel=panel)(later)


def found_at(place: str | typer.Typer) -> Any:
    """Import and return the function or group that `place` names; see `register`."""
    if isinstance(place, typer.Typer):
        return place
    module, _, attribute = place.partition(":")
    module = f"ina.cli.{module}"
    with contextlib.nullcontext() if module in sys.modules else quickly():
        return getattr(importlib.import_module(module), attribute)


def load(name: str, place: str | typer.Typer) -> Any:
    """Import the function or group that `place` names, and return it as a command of typer.

    The command's options are checked as each option's `Declared` requires.
    """
    app = found_at(place)
    if isinstance(app, typer.Typer):
        call = None if app.registered_callback is None else app.registered_callback.callback
    else:
        call = for_typer(app)
        text, examples, rest = unfold(app.__doc__ or "").partition("Examples:")
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        app.command(name, help=text.strip(), epilog=examples + rest)(call)
    command = get_command(app)
    declared = inspect.signature(call or _nothing).parameters
    for parameter in command.params:
        if parameter.name in declared:  # all but --help
            parameter.callback = functools.partial(_checked, declared[parameter.name].annotation)
    return command


def for_typer(command: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that calls the command, with annotations from which typer makes options."""
    call = flattened(command)
    signature = inspect.signature(call)
    parameters = [p.replace(annotation=_translated(p.annotation)) for p in signature.parameters.values()]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def _translated(annotation: Any) -> Any:
    if not get_args(annotation):  # typer's own context
        return annotation
    kind, declared = get_args(annotation)
    keywords = {**declared.keywords}
    make: Any = typer.Argument if keywords.pop("argument", False) else typer.Option
    return Annotated[kind, make(*declared.names, **keywords), declared]


def _checked(annotation: Any, context: Any, parameter: Any, value: Any) -> Any:
    """Return an option's value. Raises Failure for unusable paths, and BadParameter for NaN.

    NaN would pass typer's comparisons with limits.
    """
    *_, declared = get_args(annotation)
    option = f"{parameter.opts[0]} " if parameter.param_type_name == "option" else ""
    for each in value if isinstance(value, list | tuple) else () if value is None else (value,):
        if isinstance(each, float) and math.isnan(each):
            raise typer.BadParameter("'nan' is not a number.", ctx=context, param=parameter)
        if isinstance(each, Path) and "parser" not in declared.keywords:  # with a parser, it may be no path
            check_path(declared, option, each)
    return value


def unfold(docstring: str) -> str:
    """Return a docstring with each paragraph on one line, because terminals break lines themselves."""
    paragraphs = inspect.cleandoc(docstring).replace("Examples:\n", "Examples:\n\n").split("\n\n")
    return "\n\n".join(
        ("  " if paragraph.startswith(" ") else "") + " ".join(paragraph.split()) for paragraph in paragraphs
    )


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # takes a quarter of the start

        print(f"ina {version('ina')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


app: Final = group(
    "ina",
    "Aggregate gradients of training jobs inside P4 switches.",
    epilog="Exit codes: 0 success, 1 the work failed, 2 wrong usage, 3 compile error, 4 internal "
    "error, 128+N ended by signal N.",
)
app.callback()(_options)

_GROUPS: Final = {
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
_COMMANDS: Final = (
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
for _panel, _name, *_rest in _COMMANDS:
    if _rest:
        register(app, _name, *_rest, panel=_panel)
        continue
    _text, _subcommands = _GROUPS[_name]
    _group = group(_name, _text)
    register(app, _name, _group, _text, panel=_panel)
    for _subcommand in _subcommands:
        register(_group, *_subcommand)
