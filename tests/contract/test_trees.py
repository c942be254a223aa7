"""The logical tree that the controller makes of switches is one that workers and fallback servers take."""

from __future__ import annotations

from hypothesis import assume, given

from controller.switches.layout import Branch, Deployment, lay_out
from controller.switches.model import Member
from hostlib.wire.tree import Tree
from tests.controller.trees import as_admitted, trees


@given(trees())
def test_a_worker_finds_the_node_and_the_bit_that_its_switch_knows_it_by(root: Branch) -> None:
    jobs = lay_out(Deployment(root, 8), max_members=10**6)
    assume(all(job.fan_in <= 32 for job in jobs.values()))
    admitted = as_admitted(jobs)
    tree = Tree.of(admitted.tree)
    found: dict[int, tuple[int, Member]] = {}
    for admission in admitted.switches.values():
        found |= {m.rank: (admission.node, m) for m in admission.members if m.rank is not None}
    assert sorted(found) == list(range(tree.size))
    for rank, (node, member) in found.items():
        assert tree.path(rank)[0] == (node, member.bitmap)
