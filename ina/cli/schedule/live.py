"""``ina schedule live``: runs jobs under a scheduling policy, on this machine with one switch."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from controller.core import Core, LogEntry, Submitted
from controller.policies.registry import family
from controller.policies.scheduling import RESOURCES, JobState, Submission
from controller.policies.settings import AllocationSettings
from controller.simulator.engine import EndedJob
from controller.simulator.files import whole
from controller.simulator.network.generate import from_trace
from controller.simulator.runs import row_of, write_jobs
from controller.simulator.traces import read
from controller.switches.model import SwitchInfo
from controller.vocabulary import Job, Topology, documents, fabrics, jobs_of
from controller.vocabulary.schema import LIVE
from hostlib import interleave
from ina.cli import job_files, options
from ina.cli import schedule_inputs as inputs
from ina.cli.allocation.common import load_cluster
from ina.cli.allocation.simulate import NetworkPolicies
from ina.cli.command import Declared, Listing, Reply, Result, failing_at, refuse, say
from ina.cli.errors import verdict
from ina.cli.execute import print_output
from ina.errors import StagesNotMeasured
from ina.run.launch.spec import FabricSpec, LaunchSpec
from ina.run.live import LiveJobs, WorkerOptions, grouped
from ina.run.policies import SHARING, Policies
from ina.run.switches.fabric import SwitchFabric, open_fabric

LOOK_S = 0.2
"""Interval at which the progress of a measured job is read."""
WARM_UP = 2
"""Number of first iterations that are not counted, because one-time costs slow them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """Options of 'ina schedule live': jobs, the policy that decides, and the GPUs or the network."""

    jobs: Annotated[
        Path,
        Declared(
            "--jobs",
            metavar="FILE",
            help="Read the jobs from this file, in a format of 'ina schedule plan'; each needs a 'command' "
            "for its workers.",
        ),
    ]
    policy: inputs.Policy = "muri-s"
    gpus: Annotated[
        int,
        Declared(
            min=1,
            max=8,
            help="Run on this many GPUs of this machine; a job has one worker process on each of its GPUs.",
        ),
    ] = 2
    profile: Annotated[
        int,
        Declared(
            min=0,
            metavar="ITERATIONS",
            help="Measure the stage times of jobs for which the file has none, before the jobs run, over "
            "this many iterations; 0: do not measure.",
        ),
    ] = 0
    asking: options.AskingOptions
    settings: inputs.Settings = None
    cluster: Annotated[
        Path | None,
        Declared(
            parser=Path,  # the file need not exist: the value may name a topology
            metavar="FILE",
            help="Allocate servers, trees and slots of this network to jobs, instead of --gpus. Give a file, "
            "or a topology as for 'ina cluster simulate'. Default: no network.",
        ),
    ] = None
    on_cluster: NetworkPolicies
    slots: Annotated[
        int,
        Declared(
            metavar="PACKETS",
            min=2,
            help="Allocate this many slots of the switch to each job; a slot sums one packet. "
            "With --cluster, the memory policy decides the number.",
        ),
    ] = 256
    rate_bps: options.Rate = 0.0
    jobs_csv: inputs.JobsCsv = None


def live(asked: LiveSettings) -> Reply:
    """Run jobs when and where a policy decides, with gradients summed in the switch.

    The policy decides as in a simulation, from the progress that jobs report (hostlib.interleave). Jobs of a
    group take turns on storage, CPU, GPU and network. A job that was stopped resumes from its last
    checkpoint. No GPU is needed: a worker process stands for one. At most four jobs share a GPU, and further
    jobs wait. Prints every decision with its reason. Exits with status 1 if a job failed.

    Examples:
        ina schedule live --jobs examples/schedule/live.toml --gpus 2

        ina schedule live --jobs examples/schedule/live.toml --gpus 2 --policy srtf --json

        ina schedule live --jobs examples/schedule/live.toml --cluster examples/cluster/racks.toml --policy
        srtf

        ina schedule live --jobs jobs.toml --profile 10 --interval 60 --retries 2
    """
    name = inputs.parse_policy(asked.policy)
    refuse(
        family(name).startswith("synergy"),
        f"--policy {name}: it divides CPUs and memory, which 'ina schedule live' cannot do",
    )
    network, allocation = None, None
    if asked.cluster is not None:
        network = load_cluster(asked.cluster, LIVE)
        allocation = AllocationSettings(**asdict(asked.on_cluster))
    topology = network or fabrics.star(1, fabrics.Parts(gpus=asked.gpus))
    policies = Policies(name, allocation, interval_s=asked.asking.interval, retries=asked.asking.retries)
    servers = policies.servers(topology)
    policies = replace(policies, settings=inputs.parse_settings(asked.settings, [name]))
    policies.core(topology)  # raises errors of policies before processes are started
    submissions = read(asked.jobs, servers)
    command = "schedule live" if asked.cluster is None else LIVE
    job_files.note(command, asked.jobs)
    core = _decided(asked, submissions, topology, network, policies)
    if asked.jobs_csv is not None:
        with whole(asked.jobs_csv) as draft:
            write_jobs(draft, [({"policy": name}, [row_of(EndedJob.of(job)) for job in completed(core)])])
    return _reply(name, core, len(submissions), job_files.unused_keys(command, asked.jobs, asked.cluster))


def _decided(
    settings: LiveSettings,
    submissions: Sequence[Submission],
    topology: Topology,
    network: Topology | None,
    policies: Policies,
) -> Core:
    """Run the jobs, and return the core of the controller with its decisions.

    Prints decisions to standard error as they happen, also with --json.
    """
    specs = {each.name: _spec(settings.jobs, each, settings.slots) for each in submissions}
    impairments = options.FaultOptions(rate_bps=settings.rate_bps, queue=settings.slots).impairments()
    largest = max(each.gpus for each in submissions) if network else settings.gpus
    fabric_spec = FabricSpec("shared" if network else "exclusive", impairments=impairments)
    with open_fabric(fabric_spec, [largest] * min(SHARING, len(submissions))) as fabric:
        if network is not None:
            _check_slots(network, fabric.offers)
        if settings.profile:
            submissions = [
                _profiled(fabric, each, specs[each.name], settings.profile) for each in submissions
            ]
        events = submitted(submissions, settings.jobs, network, specs)
        how = WorkerOptions(
            on_output=print_output, takes_turns=True, describe=lambda error: verdict(error)[0]
        )
        service = LiveJobs(topology, policies, fabric, specs, how)
        service.run_blocking(events, on_entry=_print)
        return service.core


def _check_slots(network: Topology, offers: SwitchInfo) -> None:
    """Raise Failure if a switch of the network in `--cluster` has more slots than live jobs can use.

    Live jobs use the slots of one real switch, whose program is described by `offers`.
    """
    for switch in network.switches:
        refuse(
            switch.slots > offers.slots,
            f"--cluster: switch {switch.name} has {switch.slots:,} slots; the program of live"
            f" jobs has {offers.slots:,}: want at most this number",
        )


def submitted(
    submissions: Sequence[Submission], path: Path, network: Topology | None, specs: Mapping[str, LaunchSpec]
) -> list[Submitted]:
    """Return an event for each submission: its time, the job for the scheduler, and the job for the network.

    Args:
        submissions: The jobs as schedulers see them.
        path: The file of the jobs.
        network: The network for which jobs get servers and trees; None: no network.
        specs: By the name of each job, how the job is launched.
    """
    jobs: Sequence[Job] = [spec.job for spec in specs.values()]
    if network is not None:
        described = path.suffix in documents.FORMATS
        jobs = jobs_of(documents.read(path), network) if described else from_trace(submissions)
    known = {job.name: replace(job, command=specs[job.name].job.command) for job in jobs}
    return [Submitted(each.arrival_s, each, known[each.name]) for each in submissions]


def completed(core: Core) -> list[JobState]:
    """Return the jobs that have completed, in the order of their completion."""
    return [each.job for each in core.finished_jobs if each.outcome == "completed"]


def _spec(path: Path, job: Submission, slots: int) -> LaunchSpec:
    with failing_at(f"{path}: the command of job {job.name!r}", ValueError):  # a quote that is not closed
        command = shlex.split(job.extra.get("command", ""))
    refuse(not command, f"{path}: job {job.name!r} has no command: want one for its workers")
    return LaunchSpec(job=Job(name=job.name, workers=job.gpus, command=tuple(command), slots=slots))


def _profiled(fabric: SwitchFabric, job: Submission, spec: LaunchSpec, iterations: int) -> Submission:
    """Return the job with its stage times. If the job file does not give them, measure them first."""
    if job.stages_s:
        return job
    found = _measured(fabric, spec, iterations)
    parts = ", ".join(f"{stage} {s:.4f}" for stage, s in zip(RESOURCES, found.stages_s, strict=True))
    say(f"{job.name}: {parts} s of {found.iteration_s:.4f} s per iteration")
    return replace(job, stages_s=found.stages_s, iteration_s=found.iteration_s)


def _measured(fabric: SwitchFabric, spec: LaunchSpec, iterations: int) -> interleave.StageProfile:
    """Run a job alone, and return its stage times without the first `WARM_UP` iterations.

    Raises the job's error if it fails, or StagesNotMeasured if it ends without having marked its stages.
    """
    name = spec.name
    with grouped(fabric, [spec], (0,), print_output) as group:
        while not group.over.wait(LOOK_S) and group.turns.iterations(name) < iterations + WARM_UP:
            pass
    group.check()
    try:
        return interleave.job_profile([times[WARM_UP:] for times in group.turns.measured(name)])
    except interleave.StageError as error:
        raise StagesNotMeasured(
            f"job {name}: {error} after {group.turns.iterations(name)} iterations, of which"
            f" {WARM_UP} are not counted; its program must mark its stages (hostlib.interleave.join)"
        ) from error


def _print(entry: LogEntry) -> None:
    say(f"{entry.at_s:8.2f} s  {entry.event} {', '.join(entry.jobs)}: {entry.text}")


def _reply(policy: str, core: Core, submitted: int, unused_keys: list[str]) -> Reply:
    assert core.log is not None
    entries = core.log.entries
    ended = {job.spec.name: job for job in completed(core)}
    times = {
        name: {
            "arrival_s": job.spec.arrival_s,
            "start_s": job.start_s,
            "finish_s": job.finish_s,
            "waited_s": job.waited_s,
            "jct_s": EndedJob.of(job).jct_s,
            "slowdown": EndedJob.of(job).slowdown,
            "starts": job.starts,
            "preemptions": job.preemptions,
        }
        for name, job in ended.items()
    }
    jct_s = [each["jct_s"] or 0.0 for each in times.values()]
    metrics = {
        "jobs": submitted,
        "ended": len(ended),
        "failed": sum(each.outcome == "failed" for each in core.finished_jobs),
        "retries": sum(entry.event == "retried" for entry in entries),
        "avg_jct_s": sum(jct_s) / len(jct_s) if jct_s else None,
        "median_jct_s": statistics.median(jct_s) if jct_s else None,
        "avg_slowdown": statistics.fmean(each["slowdown"] or 0.0 for each in times.values())
        if times
        else None,
        "makespan_s": max((job.finish_s or 0.0 for job in ended.values()), default=None),
    }
    setup = {"policy": policy, "log": [asdict(entry) for entry in entries]}
    result = Result("schedule live", setup, metrics, times, unused_keys=unused_keys)
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
    failure = ""
    if core.refused:
        first = ": ".join(next(iter(core.refused.items())))
        failure = f"{len(core.refused)} of {submitted} jobs were refused; {first}"
    elif failed := [each for each in core.finished_jobs if each.outcome == "failed"]:
        what = f"{failed[0].job.spec.name}: {failed[0].reason}"
        failure = f"{len(failed)} of {submitted} jobs failed; {what}"
    columns = ["job", "arrived", "waited", "JCT", "slowdown", "starts", "preempted"]
    return Reply(result, [Listing(f"{policy}, live", columns, rows)], failure)
