"""Records of a job's submission and current state, and of audits: plain data."""

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
"""Lease of an external job: time after which the job ends if its holder sends no request, or does not end the
workers when asked."""
OVER: frozenset[State] = frozenset({"completed", "failed", "cancelled", "missed", "refused"})


@dataclass(frozen=True, slots=True)
class Said:
    """A submission.

    Attributes:
        number: The number of the submission, from 1.
        job: The job, named by its id. `arrival_s` is the time of submission, on the service's clock.
        tenant: The tenant that submitted it.
        key: The submission's idempotency key; "": none.
        holder: SHA-256 of its holder's token, if another launcher starts its workers; else "".
    """

    number: int
    job: Job
    tenant: str = ""
    key: str = ""
    holder: str = ""

    @property
    def called(self) -> str:
        """The name that the job's owner gave it: the id without ``#NUMBER``, see `id_of`."""
        return self.job.name.removesuffix(f"#{self.number}")


def id_of(name: str, number: int, tenant: str, taken: Container[str]) -> str:
    """Return the id of a job in the service. Ids are unique, and no id is another job's name.

    Args:
        name: The name that its owner gave it.
        number: The submission's number.
        tenant: The job's tenant; "": none. The id of a tenant's job is always ``NAME#NUMBER``: otherwise it
            would reveal whether other tenants have jobs of that name.
        taken: Ids of other jobs.

    >>> id_of("a", 7, "", {}), id_of("a", 8, "", {"a"}), id_of("a", 9, "alice", {})
    ('a', 'a#8', 'a#9')
    """
    return f"{name}#{number}" if tenant or name in taken else name


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job's current state. Times are seconds since the service was first started.

    Attributes:
        submitted: Its submission.
        state: Its state, such as "queued" or "completed" (`State`).
        reason: The reason for its state: why it waits, was refused, or ended.
        place: Its servers, tree and slots while it runs; else None.
        run: The number of its run while it runs; else None.
        engine: Name and state of that run in Slurm or Ray; "": it does not run, or neither runs it.
        started_s: Time of the first start of its workers; None: they have never been started.
        ended_s: Time of its end; None: it is not over.
        done: Number of its iterations, as last reported.
        left_s: Estimate of the time until it is done; None: unknown.
        starts: Number of starts of its workers.
        fallback_share: Part of its recent packets that found no slot, 0 to 1; None: unknown.
        late: Whether it has missed its deadline, or is estimated to miss it.
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
    """The result of a comparison of the desired and the actual state; without `found`, no difference."""

    at_s: float
    found: tuple[Discrepancy, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Switches that could not be read, with reasons."""

    @property
    def clean(self) -> bool:
        """Whether all switches could be read, and no difference was found."""
        return not self.found and not self.left_out
