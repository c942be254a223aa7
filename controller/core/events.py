"""Events of jobs and machines: plain data, which a service stores and replays.

``plain(event)`` gives a dict of numbers, strings, lists and dicts; ``event_of(dict)`` the event again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from controller.errors import BadSpec
from controller.policies.scheduling.model import Submission
from controller.vocabulary import Job, Straggler, Tree


class Submitted(NamedTuple):
    """A job was submitted. `job` has its network properties, if there is a network."""

    at_s: float
    spec: Submission
    job: Job | None = None


class Progressed(NamedTuple):
    """A running job has done `iterations` in all, or takes `iteration_s` for each from now on, or both.

    `iteration_s` is infinite if the job cannot continue.
    """

    at_s: float
    job: str
    done: float | None = None
    iteration_s: float | None = None


class Measured(NamedTuple):
    """A running job computes for `compute_s` in an iteration, and sums `model_bytes`; None: not measured.

    `hold_s` is for how long a packet of it holds a slot. From then on its memory follows from this, and not
    from what it was said to need.
    """

    at_s: float
    job: str
    compute_s: float | None = None
    model_bytes: int | None = None
    hold_s: float | None = None


class Ended(NamedTuple):
    """A job ended, successfully or with a failure.

    A failed job that may be retried returns to the queue, unless this is `final`: nobody can start its
    workers again. `done_s` is when its workers ended, if they say so; it may be seen later.
    """

    at_s: float
    job: str
    failure: str = ""
    final: bool = False
    done_s: float | None = None


class Overdue(NamedTuple):
    """The deadline of a job has passed that waits or runs: by `Job.on_late` it is missed, or goes on."""

    at_s: float
    job: str


class Cancelled(NamedTuple):
    """A job was cancelled by its owner, whether it ran or not."""

    at_s: float
    job: str
    reason: str = "by its owner"


class Interrupted(NamedTuple):
    """A job lost its workers without having failed: it returns to the queue."""

    at_s: float
    job: str
    reason: str


class Retried(NamedTuple):
    """A failed job is to be retried from its last checkpoint; it returns as if it were new."""

    at_s: float
    job: str


class ServerGone(NamedTuple):
    """A server is down: its jobs are interrupted, and its GPUs are unavailable until it is back."""

    at_s: float
    server: str
    reason: str = "down"


class ServerBack(NamedTuple):
    """A server that was gone can be used again."""

    at_s: float
    server: str


class SwitchGone(NamedTuple):
    """A switch is down: jobs whose trees use it get other trees, or are interrupted if there is none."""

    at_s: float
    switch: str
    reason: str = "down"


class SwitchBack(NamedTuple):
    """A switch that was gone can be used again."""

    at_s: float
    switch: str


class LinkGone(NamedTuple):
    """A link is down: jobs whose trees use it get other trees, or are interrupted if there is none."""

    at_s: float
    a: str
    b: str
    reason: str = "down"


class LinkBack(NamedTuple):
    """A link that was gone can be used again."""

    at_s: float
    a: str
    b: str


class Reallocated(NamedTuple):
    """Somebody wants memory to be divided again at the next `Tick`."""

    at_s: float
    reason: str = "asked for"


class Tick(NamedTuple):
    """The time is `at_s`: decide, if it is time to."""

    at_s: float


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

KINDS: Mapping[str, type[Event]] = {
    "submitted": Submitted,
    "progressed": Progressed,
    "measured": Measured,
    "ended": Ended,
    "overdue": Overdue,
    "cancelled": Cancelled,
    "interrupted": Interrupted,
    "retried": Retried,
    "server-gone": ServerGone,
    "server-back": ServerBack,
    "switch-gone": SwitchGone,
    "switch-back": SwitchBack,
    "link-gone": LinkGone,
    "link-back": LinkBack,
    "reallocated": Reallocated,
    "tick": Tick,
}
"""Events by the name that their plain form has as ``kind``."""

_NAMES = {kind: name for name, kind in KINDS.items()}


def plain(event: Event) -> dict[str, Any]:
    """Return the event as numbers, strings, lists and dicts, without fields that have their defaults.

    >>> plain(Ended(3.0, "a"))
    {'kind': 'ended', 'at_s': 3.0, 'job': 'a'}
    """
    defaults = event._field_defaults
    had = {
        name: value
        for name, value in event._asdict().items()
        if name not in defaults or value != defaults[name]
    }
    return {"kind": _NAMES[type(event)], **{name: _plain(value) for name, value in had.items()}}


def event_of(found: Mapping[str, Any]) -> Event:
    """Return the event for which `plain` gave this. Raises BadSpec if it is not one.

    >>> event_of({"kind": "tick", "at_s": 7})
    Tick(at_s=7)
    """
    try:
        kind = KINDS[found["kind"]]
        values: dict[str, Any] = {name: value for name, value in found.items() if name != "kind"}
        if "spec" in values:
            values["spec"] = _spec_of(values["spec"])
        if "job" in values and kind is Submitted:
            values["job"] = _job_of(values["job"])
        if values.get("iteration_s") == "inf":
            values["iteration_s"] = math.inf
        return kind(**values)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadSpec(
            f"an event of kind {found.get('kind')!r}: {error}; want one of {', '.join(KINDS)}"
        ) from error


def _fields(value: Any) -> dict[str, Any]:
    found = {}
    for each in fields(value):
        had = getattr(value, each.name)
        default = each.default_factory() if callable(each.default_factory) else each.default
        if had != default:
            found[each.name] = _plain(had)
    return found


def _plain(value: Any) -> Any:
    match value:
        case Submission() | Job() | Tree() | Straggler():
            return _fields(value)
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case float() if value == math.inf:
            return "inf"
        case _:
            return value


def _spec_of(found: Mapping[str, Any]) -> Submission:
    return Submission(**_tuples(found))


def _job_of(found: Mapping[str, Any]) -> Job:
    values = _tuples(found)
    if tree := values.get("tree"):
        values["tree"] = Tree(tree["root"], tree["parents"], frozenset(tree["aggregators"]))
    if straggler := values.get("straggler"):
        values["straggler"] = Straggler(**straggler)
    return Job(**values)


def _tuples(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
