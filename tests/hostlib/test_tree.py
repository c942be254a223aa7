from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostlib.errors import ConfigError
from hostlib.wire.tree import Tree

RACKS = Tree.of({0: [-1, -2], 1: [0, 1], 2: [2, -7], 7: [4, 3]})


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Any shape: each node hangs off an earlier one, each rank off any node; every node has a child."""
    ids = [0, *draw(st.lists(st.integers(1, 0xFFFE), max_size=6, unique=True))]
    nodes: dict[int, list[int]] = {node: [] for node in ids}
    for at, node in enumerate(ids[1:], start=1):
        nodes[draw(st.sampled_from(ids[:at]))].append(-node)
    leaves = [node for node, children in nodes.items() if not children]
    for rank in range(len(leaves) + draw(st.integers(0, 12))):
        nodes[leaves[rank] if rank < len(leaves) else draw(st.sampled_from(ids))].append(rank)
    return Tree.of({node: draw(st.permutations(children)) for node, children in nodes.items()})


@given(trees())
def test_every_rank_has_a_path_of_bits_to_the_root(tree: Tree) -> None:
    assert tree.ranks_under(0) == tuple(range(tree.size))
    for rank in range(tree.size):
        path = tree.path(rank)
        assert path[-1][0] == 0
        for node, bitmap in path:
            assert bitmap.bit_count() == 1
            assert bitmap <= tree.full_bitmap(node)
            assert rank in tree.ranks_under(node, bitmap)
            assert rank not in tree.missing({node: bitmap})
            assert rank in tree.missing({node: tree.full_bitmap(node) & ~bitmap})


@given(trees())
def test_json_keeps_everything(tree: Tree) -> None:
    assert Tree.from_json(json.loads(json.dumps(tree.to_json()))) == tree


def test_a_star_is_one_node() -> None:
    star = Tree.star(3)
    assert star == Tree.of({0: [0, 1, 2]})
    assert (star.size, star.fan_in(0), star.result_bitmap) == (3, 3, 0b111)
    assert star.path(2) == ((0, 0b100),)


def test_who_is_missing_is_told_by_rank() -> None:
    assert RACKS.path(3) == ((7, 2), (2, 2), (0, 2))
    assert RACKS.missing({0: 0b01}) == (2, 3, 4)
    assert RACKS.missing({2: 0b01}) == (3, 4)
    assert RACKS.missing({7: 0b11}) == ()
    assert RACKS.missing({99: 0}) == (), "no node of this job"


def test_each_node_tells_of_its_own_ranks() -> None:
    assert RACKS.missing({0: 0b01, 2: 0b10}) == (2,), "node 2 knows that its ranks 3 and 4 are there"
    assert RACKS.missing({0: 0b10, 2: 0b01, 7: 0b01}) == (0, 1, 3), "together they name all"
    assert RACKS.missing({2: 0b01, 7: 0b11}) == ()


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ({}, "node 0, the root, is missing"),
        ({0: []}, r"node 0 has 0 children, must be 1\.\.32"),
        ({0: range(33)}, r"node 0 has 33 children, must be 1\.\.32"),
        ({0: [0], 65535: [1]}, r"node id is 65535, must be 0\.\.65534"),
        ({0: [0, 0]}, "rank 0 is a child of node 0 and of node 0"),
        ({0: [0, -1], 1: [0]}, "rank 0 is a child of node 0 and of node 1"),
        ({0: [0, -1]}, "node 1, a child of node 0, has no entry"),
        ({0: [0], 3: [1]}, "node 3 has no parent"),
        ({0: [0, 2]}, r"ranks are \[0, 2\], must be 0\.\.n-1"),
        ({0: [0], 1: [-2], 2: [-1]}, "node 1 is not below the root, but in a circle"),
    ],
)
def test_what_is_no_tree_is_refused(nodes: dict[int, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Tree.of(nodes)


@pytest.mark.parametrize("value", [None, [0], {"x": [0]}, {"0": 1}, {"0": ["0"]}, {"0": [0.0]}, {"0": "01"}])
def test_json_that_is_no_tree_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="tree"):
        Tree.from_json(value)
