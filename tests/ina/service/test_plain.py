"""What the store holds of runs, places and admissions is what they were."""

from __future__ import annotations

import json

from controller.core import Place, Run
from controller.policies.memory.policy import Standing
from controller.switches.layout import TreeAdmission
from controller.switches.model import Admission, Member, RegionChange, Registration, Uplink
from controller.vocabulary import Region, Tree
from ina.service import plain


def test_runs_and_places_come_back() -> None:
    run = Run(3, ("a", "b"), (0, 5), (0, 2), "why")
    assert plain.run_of(json.loads(json.dumps(plain.of_run(run)))) == run
    tree = Tree("s1", {"s2": "s1"}, frozenset({"s1", "s2"}))
    for place in (
        Place(("h1",)),
        Place(("h1", "h2"), tree, "h3", {"s1": Region(8, 16)}, Standing.GRANTED),
    ):
        assert plain.place_of(json.loads(json.dumps(plain.of_place(place)))) == place


def test_admissions_come_back() -> None:
    bare = Admission(
        job=7,
        counter_row=1,
        region=Region(0, 8),
        generation=9,
        group=1,
        members=(Member(0, 1, "02:00:00:00:00:01", "10.0.0.1", 42593),),
        fan_in=1,
        window=4,
        result_bitmap=1,
    )
    below = Member(None, 2, "02:00:00:00:00:02", "10.0.0.2", 42592, 6, range(1, 3), range(2, 9))
    full = Admission(
        job=7,
        counter_row=2,
        region=Region(8, 8),
        generation=9,
        group=2,
        members=(*bare.members, below),
        fan_in=3,
        window=4,
        uplink=Uplink(3, "02:00:00:00:00:03", "10.0.0.3"),
        node=1,
        result_bitmap=7,
        change=RegionChange(5, Region(16, 8)),
        registration=Registration("ina controller", name="a", user="me", command="true", priority=3),
    )
    beside = Member(1, 3, "02:00:00:00:00:03", "10.0.0.3", 42594)
    for tree in (TreeAdmission({"s1": bare, "s2": full}), TreeAdmission({"s1": bare}, beside)):
        assert plain.admission_of(json.loads(json.dumps(plain.of_admission(tree)))) == tree
