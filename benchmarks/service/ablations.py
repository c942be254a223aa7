"""The memory policy `deadline` without some of its parts, named as ``ablations.py:once`` and so on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.memory.deadline import deadline, divided, grants
from controller.memory.policy import Answer, Question, Standing, demands
from controller.vocabulary import Job


@dataclass(slots=True)
class Once:
    """`deadline`, decided for each job when it is first asked about: it keeps its slots to its end.

    A job that does not fit then shares what is left, whatever becomes free later.
    """

    _sizes: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def __call__(self, question: Question) -> Answer:
        """Return the division: what was decided, and slots for jobs that are new."""
        there = {job.name for job in question.jobs}
        self._sizes = {name: sizes for name, sizes in self._sizes.items() if name in there}
        new = tuple(job for job in question.jobs if job.name not in self._sizes)
        taken = Counter[str]()
        for sizes in self._sizes.values():
            taken.update(sizes)
        switches = tuple(
            replace(switch, slots=switch.slots - taken[switch.name]) for switch in question.topology.switches
        )
        left = replace(question, jobs=new, topology=replace(question.topology, switches=switches))
        granted = grants(left, demands(left, new), lazy=False)
        self._sizes |= {job.name: granted.get(job.name, {}) for job in new}
        by_switch = {
            switch.name: {
                name: sizes[switch.name] for name, sizes in self._sizes.items() if switch.name in sizes
            }
            for switch in switches
        }
        standing = {
            name: Standing.GRANTED if sizes else Standing.SHARED for name, sizes in self._sizes.items()
        }
        return divided(question, by_switch, standing)


@dataclass(slots=True)
class AsTold:
    """`deadline` with computing times and bytes as their owners described them, not as measured."""

    _told: dict[str, Job] = field(default_factory=dict)

    def __call__(self, question: Question) -> Answer:
        """Return the division of `deadline` by what was first known of each job."""
        jobs = []
        for job in question.jobs:
            told = self._told.setdefault(job.name, job)
            jobs.append(
                replace(
                    job,
                    compute_s=told.compute_s,
                    overlap=told.overlap,
                    skew_s=told.skew_s,
                    layers_bytes=told.layers_bytes,
                )
            )
        return deadline(replace(question, jobs=tuple(jobs)))


once = Once()
as_told = AsTold()
