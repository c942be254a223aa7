"""Plain data about jobs (their submission and their current state) and about audits."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Literal

from controller.core import Place
from controller.vocabulary import Job

State = Literal[
    "queued", "starting", "running", "stopping", "completed", "failed", "cancelled", "missed", "refused"
]
LEASE_S = 20.0
"""Lease of an external job, in s: time after which the service ends the job if its holder sends no request,
or does not end the workers when asked to."""
OVER: frozenset[State] = frozenset({"completed", "failed", "cancelled", "missed", "refused"})


@dataclass(frozen=True, slots=True)
class Said:
    """The submission of a job.

    Attributes:
        number: The number of the submission, from 1.
        job: The job. Its name is its id in the service; its `arrival_s` is the time of the submission.
        tenant: The tenant that submitted the job.
        key: The submission's idempotency key; "": none.
        holder: SHA-256 of the holder's token, if the job is external (`ina.service.external`); else "".
    """

    number: int
    job: Job
    tenant: str = ""
    key: str = ""
    holder: str = ""

    @property
    def called(self) -> str:
        """The name that the owner gave the job: its id without ``#NUMBER``, see `id_of`."""
        return self.job.name.removesuffix(f"#{self.number}")


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
    """A job's current state. Times are seconds since the service was first started.

    Attributes:
        submitted: The job's submission.
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

    submitted: Said
    state: State
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
        return self.submitted.job.name

    @property
    def over(self) -> bool:
        """Whether the job has ended, for any reason."""
        return self.state in OVER


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A difference between the actual and the desired state of a switch or server.

    Attributes:
        where: Name of the switch or server.
        what: The expected and the actual state.
    """

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of a comparison of the desired and the actual state. `found` has the differences."""

    at_s: float
    found: tuple[Discrepancy, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """By switch that could not be read, the reason."""

    @property
    def clean(self) -> bool:
        """True if all switches could be read and no difference was found."""
        return not self.found and not self.left_out
