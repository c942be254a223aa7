"""Events of jobs and machines: plain data, which a service stores and replays.

``plain(event)`` returns an event as a dict of numbers, strings, lists and dicts; ``event_of(dict)`` converts
it back. The key ``kind`` is the name of the event's class with hyphens: ``server-gone`` for `ServerGone`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from controller.errors import BadSpec
from controller.policies.scheduling.model import Submission
from controller.vocabulary import Job
from controller.vocabulary.documents import non_default_fields


def _kind(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


class _EventBase(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind", tag=_kind
):
    """Base class of all events; `at_s` is the time of the event."""

    at_s: float


class Submitted(_EventBase, frozen=True):
    """A job was submitted. `job` describes the job's use of the network; None: the cluster has no network."""

    spec: Submission
    job: Job | None = None


class Progressed(_EventBase, frozen=True):
    """A report on a running job's progress.

    `done` is the number of completed iterations. `iteration_s` is the time for one iteration, in seconds;
    infinite: the job cannot continue. None: not reported.
    """

    job: str
    done: float | None = None
    iteration_s: float | None = None


class Measured(_EventBase, frozen=True):
    """Measurements of a running job.

    `compute_s` is the computing time of an iteration, in seconds; `model_bytes` the size of its gradient;
    `hold_s` the time for which one of the job's packets holds a slot, in seconds. None: not measured. The
    next divisions of memory use the measured values instead of the values in the job's description.
    """

    job: str
    compute_s: float | None = None
    model_bytes: int | None = None
    hold_s: float | None = None


class Ended(_EventBase, frozen=True):
    """A job ended, successfully or with a failure.

    A failed job that may be retried returns to the queue, unless `final` is true: then no process can start
    its workers again. `done_s` is the time at which its workers ended, if they report it; the event may come
    later.
    """

    job: str
    failure: str = ""
    final: bool = False
    done_s: float | None = None


class Overdue(_EventBase, frozen=True):
    """The deadline of a waiting or running job has passed: `Job.on_late` says whether the job is ended."""

    job: str


class Cancelled(_EventBase, frozen=True):
    """The owner cancelled a waiting or running job."""

    job: str
    reason: str = "by its owner"


class Interrupted(_EventBase, frozen=True):
    """A job lost its workers without a failure of its own: the job returns to the queue."""

    job: str
    reason: str


class Retried(_EventBase, frozen=True):
    """A failed job returns to the queue, and will restart from its last checkpoint."""

    job: str


class ServerGone(_EventBase, frozen=True):
    """A server is down: its jobs are interrupted, and its GPUs are unavailable until `ServerBack`."""

    server: str
    reason: str = "down"


class ServerBack(_EventBase, frozen=True):
    """A server that was gone can be used again."""

    server: str


class SwitchGone(_EventBase, frozen=True):
    """A switch is down: jobs whose trees use the switch get other trees, or else are interrupted."""

    switch: str
    reason: str = "down"


class SwitchBack(_EventBase, frozen=True):
    """A switch that was gone can be used again."""

    switch: str


class LinkGone(_EventBase, frozen=True):
    """A link is down: jobs whose trees use the link get other trees, or else are interrupted."""

    a: str
    b: str
    reason: str = "down"


class LinkBack(_EventBase, frozen=True):
    """A link that was gone can be used again."""

    a: str
    b: str


class Reallocated(_EventBase, frozen=True):
    """A request to divide memory again at the next `Tick`."""

    reason: str = "asked for"


class Tick(_EventBase, frozen=True):
    """The time has advanced to `at_s`: the core decides, if a decision is due."""


Event = (
    Submitted
    | Progressed
    | Measured
    | Ended
    | Overdue
    | Cancelled
    | Interrupted
    | Retried
    | ServerGone
    | ServerBack
    | SwitchGone
    | SwitchBack
    | LinkGone
    | LinkBack
    | Reallocated
    | Tick
)


def plain(event: Event) -> dict[str, Any]:
    """Return the event as a dict of plain values, without fields that have their default values.

    >>> plain(Ended(3.0, "a"))
    {'kind': 'ended', 'at_s': 3.0, 'job': 'a'}
    """
    found: dict[str, Any] = msgspec.to_builtins(event)
    if isinstance(event, Submitted):
        job = {"job": non_default_fields(event.job)} if event.job else {}
        found |= msgspec.to_builtins({"spec": non_default_fields(event.spec), **job})
    if found.get("iteration_s") == math.inf:  # JSON has no such number
        found["iteration_s"] = "inf"
    return found


def event_of(found: Mapping[str, Any]) -> Event:
    """Return the event that `plain` converted to `found`. Raises BadSpec if that is no valid event.

    >>> event_of({"kind": "tick", "at_s": 7})
    Tick(at_s=7.0)
    """
    try:
        event: Event = msgspec.convert(found, Event, strict=False)  # which reads "inf", too
    except msgspec.ValidationError as error:
        kinds = ", ".join(_kind(each.__name__) for each in get_args(Event))
        raise BadSpec(f"an event of kind {found.get('kind')!r}: {error}; want one of {kinds}") from error
    return event
