"""What the service knows of a job, for those who ask: plain data."""

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
"""Time for which a job stays whose holder does not renew its lease, or does not end its workers when told."""
OVER: frozenset[State] = frozenset({"completed", "failed", "cancelled", "missed", "refused"})


@dataclass(frozen=True, slots=True)
class Said:
    """A submission, as its owner made it.

    Attributes:
        number: Counts submissions, from 1.
        job: The job, under its id. `arrival_s` is when it was submitted, on the service's clock.
        tenant: Who submitted it.
        key: The submission's idempotency key; "": none.
        holder: SHA-256 of its holder's token, if it is external.
    """

    number: int
    job: Job
    tenant: str = ""
    key: str = ""
    holder: str = ""

    @property
    def called(self) -> str:
        """The name that its owner gave it: its id without ``#NUMBER``, see `id_of`."""
        return self.job.name.removesuffix(f"#{self.number}")


def id_of(name: str, number: int, tenant: str, taken: Container[str]) -> str:
    """Return the id of a job: what the service calls it. No two jobs have one, and none has another's name.

    Args:
        name: As its owner calls it.
        number: Of its submission.
        tenant: Its tenant; "": none. A tenant's id is always ``NAME#NUMBER``: whether the plain name is
            free would tell of others' jobs.
        taken: Ids of other jobs.

    >>> id_of("a", 7, "", {}), id_of("a", 8, "", {"a"}), id_of("a", 9, "alice", {})
    ('a', 'a#8', 'a#9')
    """
    return f"{name}#{number}" if tenant or name in taken else name


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as it stands. Times are seconds since the service's first start.

    Attributes:
        submitted: Its submission.
        state: Where it is in its life.
        reason: Why it is there: what it waits for, why it was refused, how it ended.
        place: Its servers, tree and slots while it runs; else None.
        run: The number of its run while it runs; else None.
        engine: How Slurm or Ray names that run, and its state there; "": it runs on this machine, or not.
        started_s: When its workers were first started; None: never yet.
        ended_s: When it was over; None: it is not.
        done: Iterations that it has done, as far as is known.
        left_s: Estimate of the time until it is done; None: unknown.
        starts: How often its workers were started.
        fallback_share: Part of its packets that found no slot lately, 0 to 1; None: not known.
        late: It is not going to meet its deadline, by the estimate; of one that is over: it did not.
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
        """Whether it has ended, one way or another."""
        return self.state in OVER


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """Something that a switch or a server holds and should not, or the other way round.

    Attributes:
        where: The switch, or the server.
        what: The expected and the actual contents.
    """

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Audit:
    """The desired against the actual state; no findings: both are the same."""

    at_s: float
    found: tuple[Discrepancy, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Switches that could not be read, with the reason."""

    @property
    def clean(self) -> bool:
        """Whether all that is intended is there, and nothing else."""
        return not self.found and not self.left_out
