"""Log entries for decisions: what changed, why, and the numbers that led to the change."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from controller.core.desired import Run
from controller.policies.memory.regions import SlotStatus
from controller.policies.scheduling.policy import Group, JobState
from controller.vocabulary import Cluster, Job, Region
from controller.vocabulary.errors import plural
from controller.vocabulary.lists import by_key

if TYPE_CHECKING:
    from controller.policies.memory.policy import MemoryDivision, MemoryProblem

# ---------------------------------------------------------------------------
# The log of a core: every decision and its reason.


Kind = (
    Literal["submitted", "refused", "waits", "started", "moved", "stopped", "placed", "memory", "note"]
    | Literal["ended", "failed", "retried", "cancelled", "interrupted", "missed", "late", "gone", "back"]
    | Literal["measured"]
)
"""Kinds of log entries. ``missed``: the core ended the job, because its deadline has passed or can no longer
be met. ``late``: the job cannot meet its deadline, but continues without one. ``placed``: the job got
servers and a tree. ``memory``: the job got different slots. ``gone``: a server, a switch or a link failed.
``back``: it can be used again."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A line of the log.

    Attributes:
        at_s: Time.
        event: The kind of event or decision.
        jobs: The jobs concerned.
        text: The reason, in words.
        numbers: The numbers that led to the decision, by name.
    """

    at_s: float
    event: Kind
    jobs: tuple[str, ...]
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)


class Log:
    """Log of a core's decisions: entries in order of time.

    Attributes:
        entries: The kept entries.
        counts: Number of entries made, by event.
        last: The number of the last entry; entries are numbered from 1.
    """

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.counts: Counter[str] = Counter()
        self.last = 0
        self._numbers: list[int] = []

    def note(self, at_s: float, event: Kind, jobs: tuple[str, ...], text: str, **numbers: float) -> None:
        """Add an entry.

        Args:
            at_s: Time.
            event: The kind of event or decision.
            jobs: Names of the jobs concerned.
            text: The reason, in words.
            **numbers: The numbers that led to the decision, by name.
        """
        self.last += 1
        self.counts[event] += 1
        self._numbers.append(self.last)
        self.entries.append(LogEntry(at_s, event, jobs, text, numbers))

    def after(self, number: int) -> list[tuple[int, LogEntry]]:
        """Return the kept entries after entry `number`, in order, as pairs of number and entry."""
        begin = bisect_right(self._numbers, number)
        return list(zip(self._numbers[begin:], self.entries[begin:], strict=True))

    def keep(self, jobs: Container[str], most: int) -> None:
        """Forget the entries that name jobs, but name none of `jobs`.

        Of all other entries, including those that name no job, keep the latest `most`.
        """
        kept = [
            (number, entry)
            for number, entry in zip(self._numbers, self.entries, strict=True)
            if not entry.jobs or any(name in jobs for name in entry.jobs)
        ][-most:]
        self._numbers = [number for number, _ in kept]
        self.entries = [entry for _, entry in kept]


MOST_NAMED = 12
"""Maximum number of jobs that the reason for a job's slots names as sharing these slots."""


def log_changes(
    log: Log,
    now_s: float,
    before: Sequence[Run],
    after: Sequence[Run],
    jobs: Mapping[str, JobState],
    policy: str,
    servers: Cluster | None,
) -> None:
    """Log the runs that are stopped, moved and started by a decision.

    Args:
        log: The log to write to.
        now_s: Time of the decision.
        before: The runs before the decision.
        after: The runs after the decision.
        jobs: The unfinished jobs, by name.
        policy: Name of the scheduling policy, named as the reason of runs that have no `reason`.
        servers: The servers to which the GPU numbers refer; None: entries give only the number of GPUs,
            because servers are chosen later.
    """
    had, has = ({run.number for run in runs} for runs in (before, after))
    stops = {run.jobs: run for run in before if run.number not in has}
    starts = {run.jobs: run for run in after if run.number not in had}
    for names in stops:
        if names not in starts:
            why = "to make room" if starts else "by the policy"
            log.note(now_s, "stopped", names, why, **_progress(names, jobs, now_s))
    for names, run in starts.items():
        reason = run.reason or f"chosen by {policy}"
        numbers = {"gpus": len(run.gpus), **_progress(names, jobs, now_s)}
        old = stops.get(names)
        if old is not None and old.gpus != run.gpus:
            ways = (
                "to other GPUs" if servers is None else f"from {_gpus(old, servers)} to {_gpus(run, servers)}"
            )
            log.note(now_s, "moved", names, f"{ways}: {reason}", **numbers)
        else:
            if old is not None:
                log.note(now_s, "stopped", names, "to start anew", **_progress(names, jobs, now_s))
            log.note(now_s, "started", names, f"on {_gpus(run, servers)}: {reason}", **numbers)


def log_waiting(log: Log, now_s: float, job: JobState, groups: Sequence[Group], cluster: Cluster) -> None:
    """Log that a job waits, with the number of GPUs that it needs and the number of free GPUs.

    Args:
        log: The log to write to.
        now_s: Time of the entry.
        job: The waiting job.
        groups: The groups that hold GPUs.
        cluster: The servers as the scheduler sees them.
    """
    needs = job.spec.gpus
    if job.group is not None:
        log.note(now_s, "waits", (job.spec.name,), "no servers have room for all of its workers", needs=needs)
        return
    free = cluster.gpus - len({gpu for group in groups for gpu in group.gpus})
    text = f"needs {plural(needs, 'GPU')}; {free} of {cluster.gpus} are free"
    if free >= needs:
        text += ", and the policy leaves them free"
    if cluster.unavailable:
        text += f"; {len(cluster.unavailable)} more on servers that are down, drained or gone"
    log.note(now_s, "waits", (job.spec.name,), text, needs=needs, free=free, gpus=cluster.gpus)


def overdue_text(described: Job, job: JobState | None, now_s: float) -> str:
    """Return a sentence about a job's progress at the time when its deadline passed.

    Args:
        described: The job as submitted.
        job: The job's state; None: the core does not know the job yet.
        now_s: The time.
    """
    iterations, left = described.iterations, None if job is None else job.iterations_left(now_s)
    whole = f"{iterations:,} iteration{'' if iterations == 1 else 's'}"
    if job is None or left is None or job.group is None or job.iteration_s == math.inf:
        how = f"it was waiting, with {iterations if left is None else left:,.0f} of {whole} left"
    elif job.reported_iterations >= iterations:
        how = f"it was still running after the {whole} that it was submitted with"
    else:
        how = f"by estimate {left:,.0f} of {whole} were left" if job.reported_iterations else "it was running"
    goes_on = "; it goes on as best effort" if described.on_late == "best-effort" else ""
    return f"its deadline, {described.deadline_s:.6g} s after its arrival, has passed, and {how}{goes_on}"


def late_text(job: Job, estimate_s: float) -> str:
    """Return a sentence that says why a job cannot meet its deadline, and that it continues.

    `estimate_s` is the time at which the job would end if it ran alone, in seconds.
    """
    return f"{_too_late(job, estimate_s)}; it goes on as best effort"


def _too_late(job: Job, estimate_s: float) -> str:
    """Return a text with a job's deadline and the time at which the job would end if it ran alone.

    The text counts both times from the job's arrival. `estimate_s` counts from the core's time 0, in seconds.
    """
    return (
        f"can no longer meet its deadline, {job.deadline_s:.6g} s after its arrival:"
        f" even alone it would end {estimate_s - job.arrival_s:.6g} s after its arrival"
    )


def place_text(job: Job) -> str:
    """Return a sentence that names a job's servers, its tree, and the switches that sum its gradients."""
    text = f"on {', '.join(job.hosts)}"
    if job.tree is None or len(job.hosts) < 2:
        return text
    summing = ", ".join(sorted(job.tree.aggregators)) or "no switch"
    return f"{text}; its tree is {', '.join(job.tree.switches)}, summed at {summing}"


def slots_text(problem: MemoryProblem, division: MemoryDivision, name: str) -> str:
    """Return a sentence that says why `division` gave job `name` its slots, or why the job was ended."""
    return division_texts(problem, division, (name,))[name]


def division_texts(problem: MemoryProblem, division: MemoryDivision, names: Iterable[str]) -> dict[str, str]:
    """Return the sentence of `slots_text` for each of several jobs, by name.

    O(jobs) for each set of regions that jobs share.
    """
    jobs = {job.name: job for job in problem.jobs}
    sharing: dict[frozenset[tuple[str, Region]], list[str]] = {}
    found: dict[str, str] = {}
    for name in names:
        places = frozenset(division.regions[name].items())
        if division.standing[name] is SlotStatus.SHARED and places not in sharing:
            sharing[places] = sorted(each for each in jobs if _meets(division, name, each))
        found[name] = _of_slots(problem, division, jobs[name], sharing.get(places, ()))
    return found


def _of_slots(problem: MemoryProblem, division: MemoryDivision, job: Job, sharing: Sequence[str]) -> str:
    """Return a sentence that says why a job has its slots.

    `sharing` names the jobs that share these slots, including `job`.
    """
    name, standing = job.name, division.standing[job.name]
    need = division.demands.get(name)
    if standing is SlotStatus.ENDED:
        late = need and _too_late(job, need.estimate_s)
        return late or "can no longer meet its deadline"
    sizes = {switch: region.size for switch, region in division.regions[name].items()}
    slots = ", ".join(f"{plural(size, 'slot')} at {switch}" for switch, size in sorted(sizes.items()))
    slots = slots or "no slots"
    if need is not None:
        left_s = (job.due_s or problem.now_s) - problem.now_s
        rate, unit = (need.rate_bps / 1e9, "Gb/s") if need.rate_bps >= 1e9 else (need.rate_bps / 1e6, "Mb/s")
        needs = f"{rate:.4g} {unit}" if need.feasible else "more than its links carry"
        wants = (
            f"{plural(job.iterations, 'iteration')} of {job.compute_s:.3g} s of computing and"
            f" {job.model_bytes:,} bytes in {left_s:.4g} s need {needs}"
        )
        if standing is SlotStatus.GRANTED:
            return f"{slots} of its own: {wants}"
        return f"{slots}, shared: {wants}, and slots of its own do not fit"
    if standing is SlotStatus.GRANTED:
        return f"{slots} of its own, by the policy; it has no deadline"
    named = [each for each in sharing[: MOST_NAMED + 1] if each != name][:MOST_NAMED]
    more = len(sharing) - 1 - len(named)
    text = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    return f"{slots}, shared with {text or 'no other job'}: it has no deadline"


def _meets(division: MemoryDivision, a: str, b: str) -> bool:
    of_a, of_b = division.regions[a], division.regions[b]
    return any(
        of_a[switch].offset < of_b[switch].end and of_b[switch].offset < of_a[switch].end
        for switch in of_a.keys() & of_b.keys()
    )


class AllocationLogger:
    """Watcher of an `Allocation` that logs the servers, trees and slots that jobs get."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._had: dict[str, tuple[Mapping[str, Region], SlotStatus]] = {}

    def on_placed(self, now_s: float, job: Job) -> None:
        """Log where a job is placed."""
        numbers = {"servers": len(job.hosts), "workers": job.workers}
        self._log.note(now_s, "placed", (job.name,), place_text(job), **numbers)

    def on_divided(self, now_s: float, problem: MemoryProblem, division: MemoryDivision) -> None:
        """Log the jobs whose slots have changed."""
        has = {name: (division.regions[name], standing) for name, standing in division.standing.items()}
        for name, (regions, standing) in has.items():
            if self._had.get(name) == (regions, standing) or standing is SlotStatus.ENDED:
                continue
            where = ", ".join(
                f"{plural(region.size, 'slot')} at {switch}, from {region.offset} on"
                for switch, region in sorted(regions.items())
            )
            numbers = {f"slots.{switch}": float(region.size) for switch, region in regions.items()}
            if name in division.demands:
                numbers["rate_bps"] = division.demands[name].rate_bps
            self._log.note(now_s, "memory", (name,), f"{standing.value}: {where or 'none'}", **numbers)
        self._had = has


def _gpus(run: Run, servers: Cluster | None) -> str:
    """Return a text with a run's GPU numbers on each server, or, without `servers`, its number of GPUs."""
    if servers is None:
        return plural(len(run.gpus), "GPU")
    node_of = servers.node_of
    found = by_key((node_of[gpu], gpu - node_of.index(node_of[gpu])) for gpu in run.gpus)
    several = len(servers.servers) > 1
    return "; ".join(
        f"GPU{'s' * (len(gpus) > 1)} {', '.join(map(str, sorted(gpus)))}"
        + f" of {servers.servers[node].name}" * several
        for node, gpus in sorted(found.items())
    )


def _progress(names: Sequence[str], jobs: Mapping[str, JobState], now_s: float) -> dict[str, float]:
    left = [jobs[name].iterations_left(now_s) for name in names if name in jobs]
    return {"left": sum(left)} if left else {}
