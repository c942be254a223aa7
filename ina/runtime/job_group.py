"""Runs the jobs of one group: they take turns on storage, CPU, GPU and network (`hostlib.interleave`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, fields

from hostlib import interleave
from ina.runtime.errors import GroupBroken
from ina.runtime.fabric import SwitchFabric
from ina.runtime.jobs import JobEnd, OnOutput, run_jobs
from ina.runtime.spec import LaunchSpec, Reports


@dataclass(frozen=True)  # without slots, which super() cannot cope with
class GroupedJob(LaunchSpec):
    """A job whose workers find their group in the environment."""

    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the workers besides their place in the job."""
        return {**super().environment(), **self.variables}


class Cancelled(Exception):
    """The group was told to stop."""


class GroupRun:
    """One group from its start to its end; `run` blocks, the rest may be called from other threads."""

    def __init__(
        self,
        fabric: SwitchFabric,
        specs: Sequence[LaunchSpec],
        offsets: Sequence[int],
        *,
        on_output: OnOutput,
        on_end: Callable[[JobEnd], None] = lambda end: None,
    ) -> None:
        """Prepare a group whose jobs start their rounds at these stages. Raises GroupError.

        `on_end` gets each job's end at once, in a thread of its own; not of a job that was cancelled.
        """
        self._fabric = fabric
        self._on_output = on_output
        self._on_end = on_end
        self._stopping = threading.Event()
        names = [spec.name for spec in specs]
        self.turns = interleave.TurnServer(
            dict(zip(names, offsets, strict=True)),
            {spec.name: spec.workers for spec in specs},
        )
        self._jobs = [_grouped(spec, self.turns.environment(spec.name)) for spec in specs]

    def run(self) -> list[JobEnd]:
        """Run all jobs to their ends, in the order given; one that fails takes the others with it.

        Raises Cancelled after `cancel`. An exception here (an interrupt) ends all jobs before it goes on.
        """
        with self.turns, ThreadPoolExecutor(len(self._jobs)) as pool:
            try:
                futures = [pool.submit(self._one, job) for job in self._jobs]
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self.cancel()
                raise
            return [future.result() for future in futures]

    def cancel(self) -> None:
        """End the jobs soon."""
        self._stopping.set()

    def check(self, ends: Sequence[JobEnd]) -> None:
        """Raise GroupBroken if the group broke, naming the job that did it, or whatever else went wrong."""
        if why := self.turns.broken:
            names = ", ".join(job.name for job in self._jobs)
            how = next((end.failure() for end in ends if end.spec.name == self.turns.culprit), None)
            raise GroupBroken(f"the group of {names} broke: {why}" + (f" ({how})" if how else ""))
        for end in ends:
            end.check()

    def _one(self, job: LaunchSpec) -> JobEnd:
        end = JobEnd(job)
        run_jobs(self._fabric, [end], on_output=self._on_output, on_progress=self._on_tick)
        if len(self._jobs) > 1:  # alone it may do without
            why = str(end.failure() or "a process ended without joining the group")
            self.turns.ended(job.name, why)
        self._on_end(end)
        return end

    def _on_tick(self, reports: Mapping[str, Reports]) -> None:
        if self._stopping.is_set():
            raise Cancelled


def _grouped(spec: LaunchSpec, variables: Mapping[str, str]) -> GroupedJob:
    return GroupedJob(**{each.name: getattr(spec, each.name) for each in fields(spec)}, variables=variables)
