"""The service's knowledge of a job, for requests: plain data."""

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
"""Time for which a job stays if its holder does not renew its lease, or does not end its workers."""
OVER: frozenset[State] = frozenset({"completed", "failed", "cancelled", "missed", "refused"})


@dataclass(frozen=True, slots=True)
class Said:
    """A submission.

    Attributes:
        number: Counts submissions, from 1.
        job: The job, under its id. `arrival_s` is the time of submission, on the service's clock.
        tenant: The submitting tenant.
        key: The submission's idempotency key; "": none.
        holder: SHA-256 of its holder's token, if another launcher starts its workers.
    """

    number: int
    job: Job
    tenant: str = ""
    key: str = ""
    holder: str = ""

    @property
    def called(self) -> str:
        """Its owner's name for it: its id without ``#NUMBER``, see `id_of`."""
        return self.job.name.removesuffix(f"#{self.number}")


def id_of(name: str, number: int, tenant: str, taken: Container[str]) -> str:
    """Return the id of a job in the service. Ids are unique, and no id is another job's name.

    Args:
        name: Its owner's name for it.
        number: The submission's number.
        tenant: The job's tenant; "": none. A tenant's id is always ``NAME#NUMBER``: a free plain name would
            reveal others' jobs.
        taken: Ids of other jobs.

    >>> id_of("a", 7, "", {}), id_of("a", 8, "", {"a"}), id_of("a", 9, "alice", {})
    ('a', 'a#8', 'a#9')
    """
    return f"{name}#{number}" if tenant or name in taken else name


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job's current state. Times are seconds since the service's first start.

    Attributes:
        submitted: Its submission.
        state: Its state of life.
        reason: The reason for its state: why it waits, was refused, or ended.
        place: Its servers, tree and slots while it runs; else None.
        run: The number of its run while it runs; else None.
        engine: Slurm's or Ray's name of that run, and its state there; "": this machine runs it, or it does
            not run.
        started_s: The first start of its workers; None: never yet.
        ended_s: Its end; None: it is not over.
        done: Its iterations, as far as is known.
        left_s: Estimate of the time until it is done; None: unknown.
        starts: Number of starts of its workers.
        fallback_share: Part of its packets that recently found no slot, 0 to 1; None: not known.
        late: It will not meet its deadline, by the estimate; of an ended job: it did not.
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
        """Whether it has ended, for any reason."""
        return self.state in OVER


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A difference between the actual and the desired state of a switch or server.

    Attributes:
        where: The switch, or the server.
        what: The expected and the actual state.
    """

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Audit:
    """Comparison of the desired and the actual state: empty means that both are the same."""

    at_s: float
    found: tuple[Discrepancy, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Switches that could not be read, with the reason."""

    @property
    def clean(self) -> bool:
        """Whether the actual state is the desired state."""
        return not self.found and not self.left_out
