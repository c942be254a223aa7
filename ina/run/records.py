"""Plain data about the service's jobs, audits and cluster, and how long ended jobs are kept. No I/O."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from controller.core import Place
from controller.vocabulary import BadSpec, Job, Topology

State = Literal[
    "queued", "starting", "running", "stopping", "completed", "failed", "cancelled", "missed", "refused"
]
LEASE_S = 20.0
"""Lease of an external job, in s: time after which the service ends the job if its holder sends no request,
or does not end the workers when asked to."""
ArchivedJob = tuple[int, str, Mapping[str, Any]]
"""Number, name and record of an archived job."""
OVER: frozenset[State] = frozenset({"completed", "failed", "cancelled", "missed", "refused"})


def id_of(name: str, number: int, tenant: str, taken: Container[str]) -> str:
    """Return a unique id for a job in the service, which is its name or ``NAME#NUMBER``.

    Args:
        name: The name that the owner gave the job.
        number: The submission's number.
        tenant: The job's tenant; "": none. The id of a tenant's job is always ``NAME#NUMBER``: otherwise the
            id would reveal whether other tenants have jobs of that name.
        taken: Ids of other jobs.

    >>> id_of("a", 7, "", {}), id_of("a", 8, "", {"a"}), id_of("a", 9, "alice", {})
    ('a', 'a#8', 'a#9')
    """
    return f"{name}#{number}" if tenant or name in taken else name


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job from its submission to its end. Times are seconds since the service was first started.

    The ledger keeps the record as the job was submitted; `Reports` returns it with the job's current state.

    Attributes:
        number: The number of the submission, from 1.
        job: The job. Its name is its id in the service; its `arrival_s` is the time of the submission.
        tenant: The tenant that submitted the job.
        key: The submission's idempotency key; "": none.
        holder: SHA-256 of the holder's token, if the job is external (`ina.run.external`); else "".
        state: The job's state, such as "queued" or "completed" (`State`).
        reason: Why the job is in this state: why it waits, was refused, or ended.
        place: The job's servers, tree and slots while it runs; else None.
        run: The number of the job's run while it runs; else None.
        engine: Name and state of the job's run in Slurm or Ray; "": the job runs in neither.
        started_s: Time of the first start of the job's workers; None: no worker has been started.
        ended_s: Time of the job's end; None: the job has not ended.
        done: Number of iterations that the job has completed, as last reported; 0 for a job that ended early.
        left_s: Estimate of the time until the job is completed, in s; None: unknown.
        starts: How many times the job's workers have been started.
        fallback_share: Fraction, 0 to 1, of the job's recent packets that found no slot; None: unknown.
        late: Whether the job has missed its deadline, or is estimated to miss it.
    """

    number: int
    job: Job
    tenant: str = ""
    key: str = ""
    holder: str = ""
    state: State = "queued"
    reason: str = ""
    place: Place | None = None
    run: int | None = None
    engine: str = ""
    started_s: float | None = None
    ended_s: float | None = None
    done: float = 0.0
    left_s: float | None = None
    starts: int = 0
    fallback_share: float | None = None
    late: bool = False

    @property
    def name(self) -> str:
        """The job's id."""
        return self.job.name

    @property
    def called(self) -> str:
        """The name that the owner gave the job: its id without ``#NUMBER``, see `id_of`."""
        return self.name.removesuffix(f"#{self.number}")

    @property
    def over(self) -> bool:
        """Whether the job has ended, for any reason."""
        return self.state in OVER


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
    """The cluster at one time, without its jobs. The switches' forwarding entries follow from it.

    Two objects are equal only if they are the same object.

    Attributes:
        whole: The whole cluster: switches, servers and links.
        up: The part of the cluster that works.
        left: By name of each switch that has left the cluster, the switch's address. The switch may still
            have jobs that must be removed.
        macs: Former MAC addresses of servers. Switches must not have forwarding entries for these.
    """

    whole: Topology
    up: Topology
    left: Mapping[str, str] = field(default_factory=dict)
    macs: frozenset[str] = frozenset()

    @classmethod
    def of(cls, cluster: Topology) -> Self:
        """Return the wiring of a cluster in which all parts work, and which no switch has left."""
        return cls(cluster, cluster)

    def changed(self, whole: Topology, up: Topology) -> Self:
        """Return the wiring after this cluster is replaced by `whole`.

        `up` is the working part of `whole`.
        """
        left = {**self.left, **{each.name: each.p4runtime for each in self.whole.switches}}
        macs = self.macs | {self.whole.mac(name) for name in self.whole.server}
        return replace(
            self,
            whole=whole,
            up=up,
            left={name: address for name, address in left.items() if name not in whole.switch},
            macs=macs - {whole.mac(name) for name in whole.server},
        )


DAY_S = 86_400.0
BATCH = 0.1
"""Fraction of `Retention.jobs` by which the number of ended jobs may exceed this maximum before the excess is
archived, so that jobs are archived in batches."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits on the number and the age of ended jobs that are not archived. Raises BadSpec.

    Attributes:
        jobs: Maximum number of ended jobs to keep.
        age_s: Maximum time, in s, to keep an ended job.
    """

    jobs: int = 10_000
    age_s: float = 30 * DAY_S

    def __post_init__(self) -> None:
        if self.jobs < 0 or not self.age_s > 0:
            raise BadSpec(
                f"retention of {self.jobs} jobs for {self.age_s:g} s: want 0 or more jobs, and more than 0 s"
            )

    def due(self, over: int, oldest_s: float, now_s: float) -> bool:
        """Return whether jobs must be archived now.

        `over` is the number of ended jobs, and `oldest_s` the time at which the first of them ended.
        """
        return over > self.jobs + max(1, int(BATCH * self.jobs)) or now_s - oldest_s > self.age_s

    def expired(self, ended: Sequence[tuple[str, float]], now_s: float) -> list[str]:
        """Return the names of the jobs to archive. `ended` has the name and the end time of each ended job.

        >>> Retention(2, 100.0).expired([("a", 0.0), ("b", 150.0), ("c", 160.0), ("d", 90.0)], 170.0)
        ['a', 'd']
        """
        oldest = sorted(ended, key=lambda each: each[1])
        most = max(0, len(oldest) - self.jobs)
        return [
            name for number, (name, at_s) in enumerate(oldest) if number < most or now_s - at_s > self.age_s
        ]
