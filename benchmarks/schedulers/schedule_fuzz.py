"""Thousands of small random simulations, with checks of each result.

`python -m benchmarks.schedulers.schedule_fuzz --cases 10000` draws a cluster (of unequal servers and in
racks, too), jobs, costs of restarts and a policy for each case, simulates, and checks invariants of all
policies:

- it ends, or raises one of the errors for a policy that cannot (`EXPECTED`);
- no GPU and no job is used twice in any decision (`verify`), and no more GPUs in all than there are;
- no job is forgotten, none ends before its arrival or sooner than it could alone;
- work is conserved: a job's life is the time of waiting and of holding GPUs, and it holds GPUs of its own for
  its time alone and for its starts, no longer;
- by the rules of the papers, no job larger than a server starts across racks beside a rack that is idle and
  large enough.

A case follows from its number: `--only 4711` repeats one. Ends with status 1 if one fails.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks import replicas
from benchmarks.fill import option, parse_options
from benchmarks.replicas import LUCID, MURI, SYNERGY
from controller.errors import ControllerError
from controller.policies.family import SimulationConfig
from controller.policies.registry import complete_jobs, family, find_family, known
from controller.policies.scheduling import Decision, Policy, Submission, View
from controller.policies.scheduling.speed import ExclusiveSpeed
from controller.simulator.engine import SimulationResult
from controller.simulator.generate import generate
from controller.simulator.runs import make
from controller.vocabulary import Cluster, Server

EXPECTED = {
    f"{MURI}:antman": ("a deadlock at", "servers of unequal size"),
    "sharing:antman": ("a deadlock at", "servers of unequal size"),
    "lucid": ("the profiler leaves", "the profiler takes", "cannot be profiled on"),
    LUCID: ("beside the profiler's nodes are", "the profiler takes"),
    SYNERGY: ("granted",),  # OPT's first program overcommits servers, as in the original
}
"""Errors that policies and families may raise instead of an end, by a part of the sentence."""

SLOW = ("lucid:online",)
"""Policies that train models for a second or more: they run every hundredth of their cases."""

FASTER = ("synergy", SYNERGY, "lucid", LUCID)
"""Families in which a job may be faster than its speed alone."""

TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Case:
    """One random simulation."""

    number: int
    policy: str
    config: SimulationConfig
    jobs: Sequence[Submission]

    def __str__(self) -> str:
        sizes = "+".join(str(node.gpus) for node in self.config.cluster.servers)
        jobs = ", ".join(
            f"({job.arrival_s:g} s, {job.gpus} GPUs, {job.duration_s:g} s, start {job.restart_s:g} s)"
            for job in self.jobs
        )
        racks = "".join(node.rack for node in self.config.cluster.servers)
        return f"case {self.number}: {self.policy} on {sizes} GPUs{racks and ' in racks ' + racks}, {jobs}"


@dataclass(frozen=True, slots=True)
class Failed:
    """A case with a wrong result, and the error."""

    policy: str
    case: str
    problem: str


def draw(number: int, policies: Sequence[str]) -> Case:
    """Return case `number`, the same for the same policies."""
    rng = random.Random(number)
    policy = rng.choice(policies)
    if policy in SLOW and rng.randrange(100):
        policy = "srtf"
    kind = family(policy)
    cluster = _cluster(rng, equal=kind == SYNERGY or policy.endswith("antman"))
    if rng.randrange(6) == 0:
        cluster = Cluster(tuple(replace(node, vc=rng.choice("ab")) for node in cluster.servers))
    specs = generate(
        rng.randint(1, 12),
        cluster,
        load=rng.choice((0.5, 1.5, 5.0)),
        seed=number,
        longest_s=rng.choice((100.0, 3000.0, 20_000.0)),
        three_stages=find_family(kind).three_stages,
    )
    config = SimulationConfig(cluster, settings=_settings(rng, policy))
    any_size = kind in ("", "sharing", MURI) and rng.randrange(2) == 0
    restart_s = rng.choice((0.0, 0.0, 5.0, 60.0, 400.0, 2000.0))
    together = rng.randrange(4) == 0
    jobs = [
        replace(
            spec,
            gpus=rng.randint(1, cluster.part(spec.vc).gpus) if any_size else spec.gpus,
            arrival_s=0.0 if together else spec.arrival_s,
            restart_s=restart_s * rng.choice((0.0, 1.0, 1.0)),
        )
        for spec in specs
    ]
    dressed = complete_jobs(jobs, kind, config)
    if rng.randrange(3) == 0:
        racks = (replace(node, rack=rng.choice("rs")) for node in cluster.servers)
        config = replace(config, cluster=Cluster(tuple(racks)))
    return Case(number, policy, config, dressed)


def failure(case: Case) -> str | None:
    """Run the case; return the error, or None."""
    cluster = case.config.cluster
    watched = None
    try:
        chosen = make(case.policy, case.config)
        if cluster.racks and not cluster.virtual and not family(case.policy):
            watched = Watched(chosen.policy)
            chosen = replace(chosen, policy=watched)
        result = chosen.run(case.jobs, cluster, verify=True)
    except ControllerError as error:
        expected = EXPECTED.get(case.policy, EXPECTED.get(family(case.policy), ()))
        return None if any(part in str(error) for part in expected) else f"{type(error).__name__}: {error}"
    except Exception as error:  # any other exception is a finding, too
        return f"{type(error).__name__}: {error}"
    if watched is not None and watched.across:
        return watched.across[0]
    alone = isinstance(chosen.speed, ExclusiveSpeed) and not family(case.policy)
    return next(wrong(case, result, exclusive=alone), None)


class Watched:
    """A policy; records in `across` the large jobs that it starts across racks though one rack was idle."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name
        self.across: list[str] = []

    def decide(self, view: View) -> Decision:
        """Return the policy's decision."""
        decision = self._policy.decide(view)
        self.across += across_racks(decision, view)
        return decision


def across_racks(decision: Decision, view: View) -> Iterator[str]:
    """Yield the groups that start across racks although one idle rack is large enough."""
    cluster, before = view.cluster, {group.gpus for group in view.groups}
    nodes = [{cluster.node_of[gpu] for gpu in group.gpus} for group in decision.groups]
    used = Counter(itertools.chain.from_iterable(nodes))
    for group, on in zip(decision.groups, nodes, strict=True):
        size = len(group.gpus)
        if size <= max(cluster.sizes) or group.gpus in before or any(on <= rack for rack in cluster.racks):
            continue
        for rack in cluster.racks:
            is_used = any(used[node] > (node in on) for node in rack)
            if not is_used and sum(cluster.sizes[node] for node in rack) >= size:
                yield f"{group.jobs} start on servers {sorted(on)}, while {sorted(rack)}, one rack, have room"


def wrong(case: Case, result: SimulationResult, *, exclusive: bool) -> Iterator[str]:
    """Yield the broken invariants of the result; `exclusive`: every job had GPUs of its own."""
    counts = Counter(job.spec.name for job in result.jobs)
    if counts != Counter(job.name for job in case.jobs):
        yield f"jobs ended: {sorted(counts.items())}"
    span_s = result.end_s - result.begin_s
    if result.gpu_integral > case.config.cluster.gpus * span_s * (1 + TOLERANCE) + TOLERANCE:
        yield f"{result.gpu_integral:g} GPU-seconds given out of {case.config.cluster.gpus} x {span_s:g}"
    for job in result.jobs:
        slack_s = TOLERANCE * max(1.0, job.finish_s)
        step_s = 300.0 if family(case.policy) in (SYNERGY, LUCID) else 0.0
        life_s = job.finish_s - job.spec.arrival_s
        if not -slack_s <= life_s - job.attained_s - job.waited_s <= slack_s + step_s:
            parts = f"waited {job.waited_s:g} s, on GPUs {job.attained_s:g} s"
            yield f"{job.spec.name} lived {life_s:g} s: {parts}"
        # "alone" is a fair share of CPUs for Synergy, and some of Lucid's pairs are measured as faster
        least_s = (
            0.0
            if family(case.policy) in FASTER or not job.completed
            else job.alone_s * (1 - TOLERANCE) - slack_s
        )
        if job.start_s < job.spec.arrival_s - slack_s or job.attained_s < least_s:
            ran = f"was on GPUs {job.attained_s:g} s from {job.start_s:g} s"
            yield f"{job.spec.name} {ran}; alone {job.alone_s:g} s"
        if exclusive:
            most_s = job.alone_s + job.starts * job.spec.restart_s
            least_s = most_s if job.starts == 1 else job.alone_s + job.spec.restart_s
            if not least_s - slack_s <= job.attained_s <= most_s + slack_s:
                yield f"{job.spec.name} held GPUs {job.attained_s:g} s, not {least_s:g} to {most_s:g} s"


def _cluster(rng: random.Random, *, equal: bool) -> Cluster:
    if equal or rng.randrange(2):
        return Cluster.uniform(rng.randint(1, 4), rng.choice((1, 2, 3, 4, 8)), cpus=24, memory_gb=500)
    sizes = [rng.choice((1, 2, 3, 4, 6, 8)) for _ in range(rng.randint(2, 5))]
    return Cluster(tuple(_node(rng, size, f"n{number}") for number, size in enumerate(sizes)))


def _node(rng: random.Random, gpus: int, name: str) -> Server:
    return Server(
        gpus=gpus,
        cpus=gpus * rng.choice((1.0, 3.0, 6.0)),
        memory_gb=gpus * rng.choice((62.5, 125.0)),
        name=name,
    )


def _settings(rng: random.Random, policy: str) -> tuple[tuple[str, float], ...]:
    has = find_family(family(policy)).settings
    wanted = {"quantum_s": (30.0, 360.0), "interval_s": (10.0, 360.0), "profiler_nodes": (0.0, 1.0)}
    return tuple((name, rng.choice(values)) for name, values in wanted.items() if name in has)


def run(numbers: Sequence[int], policies: Sequence[str], processes: int = 1) -> Iterator[Failed]:
    """Yield the cases that fail."""
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        tasks = [(number, tuple(policies)) for number in numbers]
        for found in pool.imap(_checked, tasks, chunksize=20):
            if found is not None:
                yield found


def _checked(task: tuple[int, Sequence[str]]) -> Failed | None:
    case = draw(*task)
    problem = failure(case)
    return None if problem is None else Failed(case.policy, str(case), problem)


def main() -> int:
    """Run the command."""
    options = parse_options(
        __doc__,
        option("--cases", type=int, default=10_000),
        option("--first", type=int, default=0, help="begin with the case of this number"),
        option("--only", type=int, help="run this case alone, and print its draws"),
        option("--policy", help="draw from these policies, separated by commas; all by default"),
        option("--processes", type=int, default=1),
        prog="python -m benchmarks.schedulers.schedule_fuzz",
    )
    names = options.policy.split(",") if options.policy else [*known(), *replicas.known()]
    policies = [replicas.full_name(name) for name in names]
    numbers = range(options.first, options.first + options.cases)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
        print(draw(options.only, policies))
    failed: Counter[str] = Counter()
    for each in run(numbers, policies, options.processes):
        failed[each.policy] += 1
        print(f"{each.case}\n  {each.problem}", flush=True)
    total = f"{len(numbers):,} cases of {len(policies)} policies: {failed.total()} failed"
    print(total + "".join(f"; {name} {count}" for name, count in failed.most_common()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
