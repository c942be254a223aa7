"""``ina schedule live``: real jobs under a scheduling policy, on this machine and one switch."""

from __future__ import annotations

import asyncio
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from controller.core import Core, Entry, Submitted
from controller.policies.by_kind import AllocationSettings
from controller.policies.registry import family
from controller.policies.scheduling import RESOURCES, JobState, Submission
from controller.simulator.files import whole
from controller.simulator.network.generate import from_trace
from controller.simulator.record import Ended
from controller.simulator.runs import row_of, write_jobs
from controller.simulator.traces import read
from controller.switches.model import SwitchInfo
from controller.vocabulary import Job, Topology, documents, fabrics, jobs_of
from controller.vocabulary.schema import LIVE
from ina.cli import job_files, options
from ina.cli.allocation.common import load_cluster
from ina.cli.cluster.simulate import Memories, Placements, Routings
from ina.cli.errors import USAGE, Failure, verdict
from ina.cli.live import print_output
from ina.cli.output import table
from ina.cli.plain import Result, say
from ina.cli.schedule import inputs
from ina.runtime.fabric import SwitchFabric, open_fabric
from ina.runtime.profiling import measure
from ina.runtime.spec import FabricSpec, LaunchSpec
from ina.service.live import serving
from ina.service.policies import SHARING, Policies

EPILOG = """Examples:

  ina schedule live --jobs examples/schedule/live.toml --gpus 2

  ina schedule live --jobs examples/schedule/live.toml --gpus 2 --policy srtf --json

  ina schedule live --jobs examples/schedule/live.toml --cluster examples/cluster/racks.toml --policy srtf

  ina schedule live --jobs jobs.toml --profile 10 --interval 60 --retries 2
"""


def live(
    jobs: Annotated[
        Path,
        typer.Option(
            "--jobs",
            metavar="FILE",
            help="Read the jobs from this file, as for 'ina schedule plan'; each needs a 'command' "
            "for its workers.",
        ),
    ],
    policy: inputs.Policy = "muri-s",
    gpus: Annotated[
        int,
        typer.Option(
            min=1,
            max=8,
            help="Run on this many GPUs of this machine; a job has one worker process on each of its GPUs.",
        ),
    ] = 2,
    profile: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="ITERATIONS",
            help="Measure the stage times of jobs that give none first, over this many iterations; "
            "0: do not measure.",
        ),
    ] = 0,
    interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Ask the policy only at multiples of this many seconds; 0: whenever jobs change.",
        ),
    ] = 0.0,
    retries: Annotated[
        int,
        typer.Option(
            metavar="TIMES",
            min=0,
            help="Retry a failed job up to this many times, from its last checkpoint.",
        ),
    ] = 0,
    settings: inputs.Settings = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            parser=Path,  # and not looked for: it may name a topology
            metavar="FILE",
            help="Give jobs servers, trees and slots of this network, a file as for 'ina cluster simulate';"
            " --gpus is ignored then. Default: no network.",
        ),
    ] = None,
    placement: Placements = "netpack",
    memory: Memories = "shared",
    routing: Routings = "shortest-path",
    slots: Annotated[
        int,
        typer.Option(
            metavar="PACKETS",
            min=2,
            help="Allocate this many slots of the switch to each job, one packet each. "
            "With --cluster: as many as the memory policy decides.",
        ),
    ] = 256,
    rate_bps: options.Rate = 0.0,
    jobs_csv: inputs.JobsCsv = None,
    json: options.Json = False,
) -> None:
    """Run jobs when and where a policy decides, with gradients summed in the switch.

    The policy decides as in a simulation, from the progress that jobs report (hostlib.interleave). Jobs of a
    group take turns on storage, CPU, GPU and network. A job that was stopped resumes from its last
    checkpoint. A GPU is a worker process here; at most four jobs share one, and further jobs wait. Prints
    every decision with its reason. Exits with status 1 if a job failed.
    """
    name = inputs.parse_policy(policy)
    if family(name).startswith("synergy"):
        raise Failure(
            f"--policy {name}: it grants CPUs and memory, which 'ina schedule live' cannot do", USAGE
        )
    network, allocation = None, None
    if cluster is not None:
        network = load_cluster(cluster, LIVE)
        allocation = AllocationSettings(placement=placement, memory=memory, routing=routing)
    there = network or fabrics.star(1, fabrics.Parts(gpus=gpus))
    policies = Policies(name, allocation, interval_s=interval, retries=retries)
    servers = policies.servers(there)
    numbers = inputs.ModelOptions().config(servers, [name], settings).settings
    policies = replace(policies, settings=numbers)
    policies.core(there)  # says what is wrong with them before anything is started
    submissions = read(jobs, servers)
    command = "schedule live" if cluster is None else LIVE
    job_files.note(command, jobs)
    unused_keys = job_files.unused_keys(command, jobs, cluster) if json else None
    specs = {each.name: _spec(jobs, each, slots) for each in submissions}
    impairments = options.impairments(rate=rate_bps, queue=slots)
    sizes = [max(each.gpus for each in submissions) if allocation else gpus] * min(SHARING, len(submissions))
    program = "shared" if allocation else "exclusive"
    # on a terminal and with --json too: what happens is news, the table the result
    with open_fabric(FabricSpec(program, impairments=impairments), sizes) as fabric:
        if network is not None:
            _check_slots(network, fabric.offers)
        if profile:
            submissions = [_profiled(fabric, each, specs[each.name], profile) for each in submissions]
        events = submitted(submissions, jobs, network, specs)
        with serving(
            there, policies, fabric, specs, on_output=print_output, describe=lambda error: verdict(error)[0]
        ) as service:
            asyncio.run(service.run(events, on_entry=_print))
            core = service.core
    if jobs_csv is not None:
        with whole(jobs_csv) as draft:
            write_jobs(draft, [({"policy": name}, [row_of(Ended.of(job)) for job in completed(core)])])
    _report(name, core, len(submissions), unused_keys)
    if core.refused:
        raise Failure(f"{len(core.refused)} of {len(submissions)} jobs were refused; {_first(core.refused)}")
    if failed := [each for each in core.over if each.outcome == "failed"]:
        first = failed[0]
        raise Failure(
            f"{len(failed)} of {len(submissions)} jobs failed; {first.job.spec.name}: {first.reason}"
        )


def _first(reasons: Mapping[str, str]) -> str:
    return ": ".join(next(iter(reasons.items())))


def _check_slots(network: Topology, offers: SwitchInfo) -> None:
    """Refuse switches with more slots than the one that stands for each of them has."""
    for switch in network.switches:
        if switch.slots > offers.slots:
            raise Failure(
                f"--cluster: switch {switch.name} has {switch.slots:,} slots; the program of live"
                f" jobs has {offers.slots:,}: want at most that many",
                USAGE,
            )


def submitted(
    submissions: Sequence[Submission], path: Path, network: Topology | None, specs: Mapping[str, LaunchSpec]
) -> list[Submitted]:
    """Return the events of these submissions, with what a network has to know of each job if there is one.

    Args:
        submissions: The jobs as schedulers see them.
        path: Their file.
        network: The network; None: there is none.
        specs: What their workers run.
    """
    jobs: Sequence[Job] = [spec.job for spec in specs.values()]
    if network is not None:
        described = path.suffix in documents.FORMATS
        jobs = jobs_of(documents.read(path), network) if described else from_trace(submissions)
    known = {job.name: replace(job, command=specs[job.name].job.command) for job in jobs}
    return [Submitted(each.arrival_s, each, known[each.name]) for each in submissions]


def completed(core: Core) -> list[JobState]:
    """Return the jobs that have ended successfully, in order of their ends."""
    return [each.job for each in core.over if each.outcome == "completed"]


def _spec(path: Path, job: Submission, slots: int) -> LaunchSpec:
    try:
        command = shlex.split(job.extra.get("command", ""))
    except ValueError as error:  # a quote that is not closed
        raise Failure(f"{path}: the command of job {job.name!r}: {error}", USAGE) from error
    if not command:
        raise Failure(f"{path}: job {job.name!r} has no command: want one for its workers", USAGE)
    return LaunchSpec(job=Job(name=job.name, workers=job.gpus, command=tuple(command), slots=slots))


def _profiled(fabric: SwitchFabric, job: Submission, spec: LaunchSpec, iterations: int) -> Submission:
    """Return the job with its stage times, measured unless the file gives them."""
    if job.stages_s:
        return job
    found = measure(fabric, spec, iterations, print_output)
    parts = ", ".join(f"{stage} {s:.4f}" for stage, s in zip(RESOURCES, found.stages_s, strict=True))
    line = f"{job.name}: {parts} s of {found.iteration_s:.4f} s per iteration"
    say(line)
    return replace(job, stages_s=found.stages_s, iteration_s=found.iteration_s)


def _print(entry: Entry) -> None:
    line = f"{entry.at_s:8.2f} s  {entry.event} {', '.join(entry.jobs)}: {entry.text}"
    say(line)


def _report(policy: str, core: Core, submitted: int, unused_keys: list[str] | None) -> None:
    assert core.log is not None
    entries = core.log.entries
    ended = {job.spec.name: job for job in completed(core)}
    times = {
        name: {
            "arrival_s": job.spec.arrival_s,
            "start_s": job.start_s,
            "finish_s": job.finish_s,
            "waited_s": job.waited_s,
            "jct_s": Ended.of(job).jct_s,
            "slowdown": Ended.of(job).slowdown,
            "starts": job.starts,
            "preemptions": job.preemptions,
        }
        for name, job in ended.items()
    }
    jct_s = [each["jct_s"] or 0.0 for each in times.values()]
    metrics = {
        "jobs": submitted,
        "ended": len(ended),
        "failed": sum(each.outcome == "failed" for each in core.over),
        "retries": sum(entry.event == "retried" for entry in entries),
        "avg_jct_s": sum(jct_s) / len(jct_s) if jct_s else None,
        "median_jct_s": statistics.median(jct_s) if jct_s else None,
        "avg_slowdown": statistics.fmean(each["slowdown"] or 0.0 for each in times.values())
        if times
        else None,
        "makespan_s": max((job.finish_s or 0.0 for job in ended.values()), default=None),
    }
    if unused_keys is not None:  # --json
        log = [asdict(entry) for entry in entries]
        Result("schedule live", {"policy": policy, "log": log}, metrics, times).print_json(
            unused_keys=unused_keys
        )
        return
    rows = [
        (
            name,
            *(f"{each[key]:.2f} s" for key in ("arrival_s", "waited_s", "jct_s")),
            f"{each['slowdown']:.2f}",
            str(each["starts"]),
            str(each["preemptions"]),
        )
        for name, each in times.items()
    ]
    table(f"{policy}, live", ["job", "arrived", "waited", "JCT", "slowdown", "starts", "preempted"], rows)
