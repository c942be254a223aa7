"""Events of jobs and machines, and differences between two descriptions of a cluster. No I/O.

Events are plain data, which a service stores and replays. ``plain(event)`` returns an event as a dict of
numbers, strings, lists and dicts; ``event_of(dict)`` converts it back. The key ``kind`` is the name of the
event's class with hyphens: ``server-gone`` for `ServerGone`.

Of the differences, the module finds those that force placed jobs to move. A job keeps its place if a change
does not affect it. A change that removes a switch or a link of its tree is treated as a failure: the job gets
another tree if there is one (`controller.core.allocator.Allocator.set_outages`). This module collects the
changes that force a job to leave its place: a server has left or has another switch or address, a port of a
link has another number, or the memory of a switch has another size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

import msgspec

from controller.errors import BadSpec
from controller.policies.scheduling.policy import Submission
from controller.vocabulary import Job, Link, Server, Switch, Topology
from controller.vocabulary.documents import non_default_fields, shown
from controller.vocabulary.errors import plural


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


_REACHED = ("ip", "mac", "interface", "address")
"""Properties of a server that its workers, and the table entries of its switch, depend on."""
_MEMORY = ("slots", "lanes")
"""Properties of a switch that the jobs summed at the switch depend on."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between two descriptions of a cluster.

    Attributes:
        notes: One sentence about each difference.
        servers: By server, why jobs' workers cannot stay there.
        fallbacks: By server, why jobs cannot continue to use the fallback server there.
        switches: By switch, why jobs cannot keep their slots there.
        links: By the two ends of a link, why jobs cannot continue to use the link.
    """

    notes: tuple[str, ...]
    servers: Mapping[str, str]
    fallbacks: Mapping[str, str]
    switches: Mapping[str, str]
    links: Mapping[frozenset[str], str]

    def why_moved(self, job: Job, after: Topology) -> str:
        """Return why a placed job has to leave its place; "" if the job can stay.

        A job that only needs another tree can stay.

        Args:
            job: The job, with its servers, tree and fallback server.
            after: The cluster as it is from now on.
        """
        for server in job.hosts:
            if server in self.servers:
                return self.servers[server]
        if job.tree is None or len(job.hosts) == 1:
            return ""
        fallback = job.fallback or ""
        if fallback in self.fallbacks:
            return self.fallbacks[fallback]
        for switch in job.tree.aggregators:
            if switch in self.switches:
                return self.switches[switch]
        ways = [frozenset(pair) for pair in job.tree.parents.items()]
        ways += [frozenset((server, after.rack_of[server])) for server in job.hosts]
        if job.tree.root in after.switch and fallback in after.server:
            ways.append(frozenset((job.tree.root, first_hop(after, job.tree.root, fallback))))
        return next((self.links[ends] for ends in ways if ends in self.links), "")


def first_hop(topology: Topology, root: str, server: str) -> str:
    """Return the node after switch `root` on the path from there to a server."""
    return (*topology.way(root, topology.rack_of[server]), server)[1]


def compare(before: Topology, after: Topology) -> Changes:
    """Return the differences between two descriptions of a cluster.

    Nodes with equal names are the same node. O(switches + servers + links).

    >>> from controller.vocabulary import fabrics
    >>> compare(fabrics.star(3), fabrics.star(2)).notes
    ("server 'h3' has left the cluster",)
    """
    notes: list[str] = []
    servers: dict[str, str] = {}
    fallbacks: dict[str, str] = {}
    switches: dict[str, str] = {}
    links: dict[frozenset[str], str] = {}
    for kind, old, new in (
        ("switch", before.switch, after.switch),
        ("server", before.server, after.server),
    ):
        notes += [f"{kind} {name!r} has left the cluster" for name in old if name not in new]
        notes += [_new(after, kind, name) for name in new if name not in old]
    for name, was in before.server.items():
        if name not in after.server:
            servers[name] = f"server {name!r} has left the cluster"
            continue
        differing = dict(_differing(was, after.server[name]))
        differing |= dict(_ways(before, after, name))
        notes += [f"server {name!r}: {text}" for text in differing.values()]
        moved = [text for key, text in differing.items() if key in (*_REACHED, "switch")]
        fewer = ["gpus"] if after.server[name].gpus < was.gpus else []
        if why := [*moved, *(differing[key] for key in fewer)]:
            servers[name] = f"server {name!r}: {why[0]}"
        if moved:
            fallbacks[name] = f"fallback server at {name!r}: {moved[0]}"
        elif was.fallback_port and not after.server[name].fallback_port:
            fallbacks[name] = f"server {name!r} runs no fallback server any more"
    for name, had in before.switch.items():
        if name in after.switch:
            changed = dict(_differing(had, after.switch[name]))
            notes += [f"switch {name!r}: {text}" for text in changed.values()]
            if memory := [text for key, text in changed.items() if key in _MEMORY]:
                switches[name] = f"switch {name!r}: {memory[0]}"
    known = {frozenset((link.a, link.b)): link for link in before.links}
    for link in after.links:
        ends = frozenset((link.a, link.b))
        if ends not in known:
            if ends <= {*before.switch, *before.server}:
                notes.append(f"link {link.a}-{link.b} is new")
            continue
        old_link = known.pop(ends)
        notes += [f"link {link.a}-{link.b}: {text}" for _, text in _differing(old_link, link)]
        if ports := list(_ports(before, after, ends)):
            notes += ports
            links[ends] = ports[0]
    notes += [
        f"link {link.a}-{link.b} has left the cluster"
        for ends, link in known.items()
        if ends <= {*after.switch, *after.server}
    ]
    return Changes(tuple(notes), servers, fallbacks, switches, links)


def _new(topology: Topology, kind: str, name: str) -> str:
    if kind == "switch":
        return f"switch {name!r} is new, with {plural(topology.switch[name].slots, 'slot')}"
    server = topology.server[name]
    has = plural(server.gpus, "GPU") if server.gpus else f"role {server.role}"
    return f"server {name!r} is new, with {has}, at switch {topology.rack_of[name]!r}"


def _differing(before: Server | Switch | Link, after: Server | Switch | Link) -> Iterator[tuple[str, str]]:
    """Yield each property that differs, with a sentence about it.

    Does not compare ends, ports and addresses, because their defaults depend on the position in the
    description; `_ways` and `_ports` compare them.
    """
    for each in fields(before):
        if each.name in ("a", "b", "a_port", "b_port", "ip", "mac"):
            continue
        was, now = getattr(before, each.name), getattr(after, each.name)
        if was != now:
            yield each.name, f"{each.name} = {shown(now)}, was {shown(was)}"


def _ways(before: Topology, after: Topology, server: str) -> Iterator[tuple[str, str]]:
    was, now = before.rack_of[server], after.rack_of[server]
    if was != now:
        yield "switch", f"switch = {shown(now)}, was {shown(was)}"
        return
    for what in ("ip", "mac"):
        own_before, own_after = getattr(before, what)(server), getattr(after, what)(server)
        if own_before != own_after:
            yield what, f"{what} = {shown(own_after)}, was {shown(own_before)}"


def _ports(before: Topology, after: Topology, ends: frozenset[str]) -> Iterator[str]:
    """Yield a sentence about each end of a link at which the port differs; both topologies have the link."""
    for end in sorted(ends):
        if end in before.switch and end in after.switch:
            (other,) = ends - {end}
            was, now = before.port_to(end, other), after.port_to(end, other)
            if was != now:
                yield f"link {end}-{other}: port {now} of {end}, was {was}"
