"""The packing tree that schedules has not seen what it schedules."""

from __future__ import annotations

from controller.policies.family import SimulationConfig
from controller.policies.scheduling.lucid.family import measurements, packing_tree
from controller.policies.scheduling.lucid.usage import grow, sizes_from_pairs
from controller.vocabulary import Cluster

CONFIG = SimulationConfig(Cluster.uniform(1, 8))


def test_a_job_is_classed_by_a_tree_that_never_saw_its_configuration() -> None:
    usages, pairs = measurements(CONFIG)
    sizes = sizes_from_pairs(pairs)
    for mine in list(usages)[:3]:
        others = [(usages[c], sizes[c]) for c in usages if c in sizes and usages[c] != usages[mine]]
        assert packing_tree(CONFIG, usages[mine]) == grow(others, prune=0.02, seed=CONFIG.seed)
    assert any(packing_tree(CONFIG, usage) != packing_tree(CONFIG) for usage in usages.values())
