"""``ina explain``: why one job got what it got, in words and numbers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from controller.core.allocator import Allocator
from controller.memory.explain import explain as explain_memory
from controller.placement.explain import explain as explain_placement
from controller.routing.explain import explain as explain_route
from controller.routing.policy import Question
from controller.simulator.network.settings import NetworkSettings
from ina.cli import job_files, options
from ina.cli.allocation import alloc, common, place, route
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import Result
from ina.cli.service.common import ControllerOptions
from ina.cli.service.explained import explain as explain_live

EPILOG = """Examples:

  ina explain alloc contest --jobs examples/allocation/jobs.toml --cluster examples/allocation/rack.toml

  ina explain place vision-2 --jobs examples/allocation/batch.yaml --cluster examples/allocation/fabric.toml

  ina explain route text-2 --jobs placed.json --cluster examples/allocation/fabric.toml

  ina explain cluster train-3 --jobs examples/cluster/jobs.toml --cluster examples/cluster/racks.toml

  ina explain night-run --controller http://127.0.0.1:9580
"""

NO_MEMORY = "It stays on one server: it uses no switch memory."
SIMULATED = "For cluster only"


class What(StrEnum):
    """The kinds of decisions to explain."""

    ALLOC = "alloc"
    PLACE = "place"
    ROUTE = "route"
    CLUSTER = "cluster"


DEFAULT = {What.ALLOC: "deadline", What.PLACE: "netpack", What.ROUTE: "grid"}


def _simulated_with(what: str) -> Any:
    """Return an option that only ``ina explain cluster`` uses."""
    help_text = f"{what}, as in 'ina cluster simulate'."
    return typer.Option(metavar="NAME", help=help_text, rich_help_panel=SIMULATED)


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Name the command whose decision to explain (alloc, place, route or cluster), or a job of "
            "the controller.",
        ),
    ],
    job: Annotated[
        str, typer.Argument(metavar="[JOB]", help="Name the job, after a command.", show_default=False)
    ] = "",
    *,
    jobs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read the jobs from this file: .toml, .json or .yaml, or a scheduler's trace (.csv).",
        ),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            parser=Path,  # and not looked for: it may name a topology
            metavar="FILE",
            help="Read servers, switches and links from this file: .toml, .json or .yaml; or name a "
            "topology of the testbeds, such as leaf-spine:2x4x8.",
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Use this policy. Default: that of the command.", show_default=False)
    ] = None,
    reading: alloc.Reading = alloc.ReadingOption.MEASURED,
    now: alloc.Now = 0.0,
    draws: route.Draws = 8,
    margin: common.Margin = 0.05,
    seed: common.Seed = 0,
    scheduler: Annotated[str, _simulated_with("Schedule jobs by this policy")] = "fifo-backfill",
    placement: Annotated[str, _simulated_with("Place jobs by this policy")] = "netpack",
    memory: Annotated[str, _simulated_with("Divide slots by this policy")] = "shared",
    routing: Annotated[str, _simulated_with("Choose trees by this policy")] = "shortest-path",
    at: ControllerOptions,
    json: options.Json = False,
) -> None:
    """Explain why a job got its slots, servers, tree or completion time, or why a controller's job waits.

    With WHAT and JOB: says what limited the job and what more resources would bring. Runs the policy again
    for all jobs of the file: give the same options as to the command whose decision to explain. With JOB
    alone: asks the controller, which tells all that it has decided of the job, and what the job needs now.
    """
    if not job:
        explain_live(what, at, json=json)
        return
    if what not in [*What]:
        raise Failure(f"{what!r}: want one of {', '.join(What)}, or a controller's job alone", USAGE)
    if jobs is None or cluster is None:
        raise Failure(f"ina explain {what} {job} needs --jobs FILE and --cluster FILE", USAGE)
    what = What(what)
    inputs = common.load(jobs, cluster, "explain")
    if what is What.CLUSTER:
        name = f"{scheduler} + {placement} + {memory} + {routing}"
        settings = NetworkSettings(
            placement=placement,
            memory=memory,
            routing=routing,
            reading=reading.value,
            margin=margin,
            seed=seed,
        )
        lines = _simulated(job, inputs, scheduler, settings)
    else:
        name = policy or DEFAULT[what]
        if what is What.ALLOC:
            allocator = alloc.decide(inputs, name, reading, now, margin)
        elif what is What.ROUTE:
            allocator = route.decide(inputs, name, draws, seed)
        else:
            allocator = place.decide(inputs, name, seed)
        lines = _lines(what, job, inputs, allocator)
    if json:
        setup = {"what": str(what), "job": job, "policy": name}
        unused_keys = job_files.unused_keys("explain", jobs, cluster)
        Result("explain", setup, {"lines": lines}).print_json(unused_keys=unused_keys)
        return
    for line in lines:
        print(line)


def _simulated(job: str, inputs: common.Inputs, scheduler: str, settings: NetworkSettings) -> list[str]:
    from controller.simulator.network.explain import explain as explain_simulated
    from controller.simulator.network.run import simulate_network

    common.one_job(job, inputs.jobs)
    return explain_simulated(
        simulate_network(inputs.jobs, inputs.topology, scheduler, settings, keep_log=True), job
    )


def _lines(what: What, name: str, inputs: common.Inputs, allocator: Allocator) -> list[str]:
    common.one_job(name, inputs.jobs)
    if name not in allocator.placed:
        return [f"{name} waits: too few GPUs are free for it and the other jobs of the batch."]
    job, state = allocator.placed[name], allocator.state
    match what:
        case What.ALLOC:
            question, answer = alloc.divided(allocator)
            asked = [each for each in question.jobs if each.name == name]
            return explain_memory(question, answer, asked[0]) if asked else [NO_MEMORY]
        case What.ROUTE:
            trees = {each.name: each.tree for each in state.jobs if each.tree is not None}
            return explain_route(Question(state.topology, state.jobs), trees, job)
        case _:
            return explain_placement(state, job)
