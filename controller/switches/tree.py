"""A job on several switches: every switch sums what hangs on it and sends one packet up.

`admit_tree` admits a `Deployment` (`controller.switches.layout`) to all its switches or none. What the
switches hold together is a `TreeAdmission`; `read_tree` reads it back from them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from controller.errors import BadJob, ControllerError, IdentityTaken, NoSuchJob, ProgramMismatch, naming
from controller.switches.layout import Branch, Deployment, Downlink, lay_out
from controller.switches.model import Admission, Lease, Part, SwitchInfo
from controller.switches.planning import Identity, check_mode
from controller.switches.session import Controller

__all__ = [
    "Branch",
    "Deployment",
    "Downlink",
    "TreeAdmission",
    "admit_tree",
    "read_tree",
    "read_trees",
    "remove_tree",
]

_ATTEMPTS = 5  # to find an identity that no other controller takes at the same time


@dataclass(frozen=True, slots=True)
class TreeAdmission:
    """A job as the switches of its tree serve it, by the switches' names: at least one."""

    switches: Mapping[str, Admission]

    @property
    def job(self) -> int:
        """The job's id, the same everywhere."""
        return self._any.job

    @property
    def generation(self) -> int:
        """The generation of its slots, the same everywhere."""
        return self._any.generation

    @property
    def epoch(self) -> int:
        """Part of the generation that packets carry."""
        return self._any.epoch

    @property
    def window(self) -> int:
        """Most packets that a worker may have under way."""
        return self._any.window

    @property
    def tree(self) -> dict[int, list[int]]:
        """The logical tree: by node id the children in the order of their bits.

        A child is a worker's rank, or -n for node n; transit switches do not show. Children that are
        on none of these switches are left out; if the tree is `whole`, there are none.
        """
        children: dict[int, dict[int, int]] = {}
        for admission in self.switches.values():
            node = children.setdefault(admission.node, {})
            node.update({m.bitmap: m.rank for m in admission.members if m.rank is not None})
            uplink = admission.uplink
            if uplink is not None and not admission.root and not admission.transit:
                children.setdefault(uplink.node, {})[uplink.bitmap] = -admission.node
        return {node: [of[bit] for bit in sorted(of)] for node, of in sorted(children.items())}

    @property
    def whole(self) -> bool:
        """True if every child of every node is on one of these switches."""
        fan_ins = {a.node: a.fan_in for a in self.switches.values() if not a.transit}
        return 0 in fan_ins and {node: len(of) for node, of in self.tree.items()} == fan_ins

    @property
    def _any(self) -> Admission:
        return next(iter(self.switches.values()))


def admit_tree(
    controllers: Mapping[str, Controller],
    deployment: Deployment,
    *,
    ports: Mapping[str, Sequence[int]] | None = None,
    identity: Identity | None = None,
    lease: Lease | None = None,
) -> TreeAdmission:
    """Admit a job to all switches of its tree, under one job id and generation.

    `controllers` are by the switches' names. Members, and a fallback server, without a port get the
    lowest of their switch's `ports` that no job uses. Without an `identity` one that is free everywhere is
    chosen. For `lease` see `Controller.admit`.

    Raises what `Controller.admit` raises, and BadJob for a tree that cannot be; the message begins
    with the name of the switch at fault. The job is then on none of the switches, but for those that
    cannot be reached any more.
    """
    names = [switch.name for switch in deployment.root.walk()]
    missing = [name for name in names if name not in controllers]
    if missing:
        raise BadJob(f"no switch '{missing[0]}' is known; there are {', '.join(sorted(controllers))}")
    infos = {}
    for name in names:
        with naming(name):
            infos[name] = controllers[name].info()
    parts = lay_out(deployment, max_members=min(info.max_members for info in infos.values()))
    _check_programs(parts, infos)
    ports = ports or {}
    for _ in range(0 if identity else _ATTEMPTS - 1):
        with contextlib.suppress(IdentityTaken):
            return _admit_all(controllers, parts, ports, _choose_identity(controllers, parts), lease)
    return _admit_all(controllers, parts, ports, identity or _choose_identity(controllers, parts), lease)


def _check_programs(parts: Mapping[str, Part], infos: Mapping[str, SwitchInfo]) -> None:
    root = next(iter(parts))
    for name, part in parts.items():
        with naming(name):
            check_mode(part, infos[name])
            if infos[name].lanes != infos[root].lanes:
                raise ProgramMismatch(
                    f"the program is built for {infos[name].lanes} values per packet, that of switch"
                    f" '{root}' for {infos[root].lanes}"
                )


def _admit_all(
    controllers: Mapping[str, Controller],
    parts: Mapping[str, Part],
    ports: Mapping[str, Sequence[int]],
    identity: Identity,
    lease: Lease | None,
) -> TreeAdmission:
    with contextlib.ExitStack() as undo:
        admitted = {}
        for name, part in parts.items():
            with naming(name):
                admitted[name] = controllers[name].admit(
                    part, ports=ports.get(name, ()), identity=identity, lease=lease
                )
            undo.callback(_remove_if_possible, controllers[name], identity.job)
        undo.pop_all()
    return TreeAdmission(admitted)


def _choose_identity(controllers: Mapping[str, Controller], switches: Collection[str]) -> Identity:
    present: list[Admission] = []
    for name in switches:
        with naming(name):
            present += controllers[name].jobs().values()
    return controllers[next(iter(switches))].choose_identity(present)


def _remove_if_possible(controller: Controller, job: int) -> None:
    """Clean up after an error that is on its way already; a second one would hide it."""
    with contextlib.suppress(ControllerError):
        controller.remove(job)


def read_trees(controllers: Mapping[str, Controller]) -> dict[int, TreeAdmission]:
    """Read the jobs that switches serve, by job id; jobs on one switch are trees of one node.

    A tree that is not `whole` has a part on a switch that was not asked, is being admitted or
    removed, or was left by a controller that died at that. Of two jobs with the same id, on switches
    that have nothing to do with each other, the later one is returned.
    """
    found: dict[tuple[int, int], dict[str, Admission]] = {}
    for name, controller in controllers.items():
        with naming(name):
            for admission in controller.jobs().values():
                found.setdefault((admission.generation, admission.job), {})[name] = admission
    return {job: TreeAdmission(switches) for (_, job), switches in sorted(found.items())}


def read_tree(controllers: Mapping[str, Controller], job: int) -> TreeAdmission:
    """Read what the switches hold of a job. Raises NoSuchJob if none of them has it."""
    found = read_trees(controllers).get(job)
    if found is None:
        raise NoSuchJob(f"none of the switches {', '.join(sorted(controllers))} has a job {job}")
    return found


def remove_tree(controllers: Mapping[str, Controller], admission: TreeAdmission) -> None:
    """Take a job off all its switches; off those that fail only later attempts can.

    Raises, when all switches have been tried, the first error, which names its switch; NoSuchJob only
    if no switch has the job any more.
    """
    errors: list[ControllerError] = []
    removed = 0
    for name, on_switch in admission.switches.items():
        try:
            with naming(name):
                controllers[name].remove(on_switch.job)
            removed += 1
        except ControllerError as error:
            errors.append(error)
    gone = [e for e in errors if isinstance(e, NoSuchJob)]
    failed = [e for e in errors if not isinstance(e, NoSuchJob)]
    if failed or (gone and not removed):
        raise (failed or gone)[0]
