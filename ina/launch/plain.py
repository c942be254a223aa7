"""Runs, places and admissions as numbers, strings, lists and dicts, and back: what the store holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from controller.switches.layout import TreeAdmission
from controller.switches.model import Admission, Member, RegionChange, Registration, Uplink
from controller.vocabulary import Region, Tree

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from controller.core import Place, Run


def of_run(run: Run) -> dict[str, Any]:
    """Return a run as plain data."""
    return asdict(run)


def run_of(found: Mapping[str, Any]) -> Run:
    """Return the run that `of_run` gave this for."""
    from controller.core import Run  # the process of a run needs none of what decides

    return Run(
        found["number"],
        tuple(found["jobs"]),
        tuple(found["gpus"]),
        tuple(found["offsets"]),
        found["reason"],
    )


def of_place(place: Place) -> dict[str, Any]:
    """Return a place as plain data."""
    tree = place.tree
    return {
        "servers": list(place.servers),
        "tree": tree and [tree.root, dict(tree.parents), sorted(tree.aggregators)],
        "fallback": place.fallback,
        "regions": {switch: [region.offset, region.size] for switch, region in place.regions.items()},
        "standing": place.standing and place.standing.value,
        "in_flight": place.in_flight,
    }


def place_of(found: Mapping[str, Any]) -> Place:
    """Return the place that `of_place` gave this for."""
    from controller.core import Place
    from controller.policies.memory.regions import Standing

    tree = found["tree"]
    return Place(
        tuple(found["servers"]),
        tree and Tree(tree[0], tree[1], frozenset(tree[2])),
        found["fallback"],
        {switch: Region(*region) for switch, region in found["regions"].items()},
        found["standing"] and Standing(found["standing"]),
        found.get("in_flight", 0),
    )


def of_admission(tree: TreeAdmission) -> dict[str, Any]:
    """Return a job's admission as plain data: by switch, and the worker beside its server under no name."""
    found: dict[str, Any] = {name: _of_admission(each) for name, each in tree.switches.items()}
    return found if tree.beside is None else {**found, "": _of_member(tree.beside)}


def _of_admission(admission: Admission) -> dict[str, Any]:
    change = admission.change
    return {
        **_fields(admission),
        "region": _fields(admission.region),
        "members": [_of_member(member) for member in admission.members],
        "uplink": admission.uplink and _fields(admission.uplink),
        "change": change and {"number": change.number, "region": _fields(change.region)},
        "registration": admission.registration and _fields(admission.registration),
    }


def _of_member(member: Member) -> dict[str, Any]:
    ranges = {name: [of.start, of.stop] for name, of in (("below", member.below), ("ranks", member.ranks))}
    return {**_fields(member), **ranges}


def _fields(of: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a dataclass, not of those in it: `asdict` takes three times as long."""
    return {each.name: getattr(of, each.name) for each in fields(of)}


def admission_of(found: Mapping[str, Any]) -> TreeAdmission:
    """Return the admission that `of_admission` gave this for."""
    switches = {name: _admission(each) for name, each in found.items() if name}
    return TreeAdmission(switches, _member(found[""]) if "" in found else None)


def _admission(found: Mapping[str, Any]) -> Admission:
    change, said, uplink = found["change"], found["registration"], found["uplink"]
    known = {
        "region": Region(**found["region"]),
        "members": tuple(_member(each) for each in found["members"]),
        "uplink": uplink and Uplink(**uplink),
        "change": change and RegionChange(change["number"], Region(**change["region"])),
        "registration": said and Registration(**said),
    }
    return Admission(**{**found, **known})


def _member(found: Mapping[str, Any]) -> Member:
    ranges = {name: range(*found[name]) for name in ("below", "ranks") if name in found}  # once, no `ranks`
    return Member(**{**found, **ranges})
