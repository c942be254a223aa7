"""Speeds of two jobs on one set of GPUs: measured pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.measured import Config, Pair
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Group


def config_by_columns(spec: Submission) -> Config:
    """Return a job's configuration: its model and batch size, and the trace's columns `dataset` and `amp`.

    Raises BadSpec if a column is missing.
    """
    try:
        return Config(
            spec.model, spec.extra["dataset"], spec.batch, spec.extra["amp"] not in ("0", "False", "")
        )
    except KeyError as error:
        raise BadSpec(f"job {spec.name!r} has no column {error} in its trace") from None


class PairSpeed:
    """Two jobs run at the speeds that were measured for their configurations on one GPU, whatever their GPUs.

    Pairs that were not measured run at `unmeasured` of their speeds alone. Restarting a job costs
    `restart_s` of its GPU count; its first start is free.
    """

    def __init__(
        self,
        pairs: Iterable[Pair],
        config_of: Callable[[Submission], Config] = config_by_columns,
        *,
        unmeasured: float = 1.0,
        restart_s: Callable[[int], float] = lambda gpus: 0.0,
    ) -> None:
        self._speeds: dict[tuple[Config, Config], tuple[float, float]] = {}
        for pair in pairs:
            self._speeds[pair.one, pair.other] = pair.speed_one, pair.speed_other
            self._speeds[pair.other, pair.one] = pair.speed_other, pair.speed_one
        self._config_of = config_of
        self._unmeasured = unmeasured
        self._restart_s = restart_s

    def alone_s(self, job: Submission) -> float:
        """Return the job's own seconds per iteration."""
        return job.iteration_s

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the seconds per iteration alone, divided by the measured speeds.

        Raises BadSpec for more than two jobs.
        """
        if len(group.jobs) == 1:
            return [group.jobs[0].alone_s]
        if len(group.jobs) > 2:
            raise BadSpec(f"{len(group.jobs)} jobs share GPUs; want 2 at most: only pairs were measured")
        one, other = group.jobs
        key = self._config_of(one.spec), self._config_of(other.spec)
        speeds = self._speeds.get(key, (self._unmeasured, self._unmeasured))
        return [one.alone_s / speeds[0], other.alone_s / speeds[1]]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the cost of starting, in seconds for each member; 0 the first time."""
        return [self._restart_s(job.spec.gpus) if job.starts else 0.0 for job in group.jobs]
