"""The logical aggregation tree of a job: which switch sums packets of which children.

Nodes are aggregating switches. Node 0 is the root; the other ids, 1..65534, are arbitrary. The position
of a child in its node's list is its bit in that node's contribution bitmaps. A child c >= 0 is the worker of
rank c, a child c < 0 the node -c.

>>> racks = Tree({0: (-1, -2), 1: (0, 1), 2: (2, 3)})
>>> racks.path(3)
((2, 2), (0, 2))
>>> racks.ranks_under(0, 0b10)
(2, 3)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from hostlib import wire
from hostlib.errors import ConfigError

MAX_NODE = 0xFFFE


@dataclass(frozen=True, slots=True)
class Tree:
    """A valid tree: every node and every rank is below the root, exactly once."""

    nodes: Mapping[int, tuple[int, ...]]
    """Children of each node by bit."""

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid tree."""
        if wire.ROOT_NODE not in self.nodes:
            raise ConfigError(f"tree: node {wire.ROOT_NODE}, the root, is missing")
        found: dict[int, int] = {}
        for node, children in self.nodes.items():
            if not 0 <= node <= MAX_NODE:
                raise ConfigError(f"tree: node id is {node}, must be 0..{MAX_NODE}")
            if not 1 <= len(children) <= wire.MAX_FAN_IN:
                raise ConfigError(
                    f"tree: node {node} has {len(children)} children, must be 1..{wire.MAX_FAN_IN}"
                )
            for child in children:
                name = f"node {-child}" if child < 0 else f"rank {child}"
                if child in found:
                    raise ConfigError(f"tree: {name} is a child of node {found[child]} and of node {node}")
                if child < 0 and -child not in self.nodes:
                    raise ConfigError(f"tree: {name}, a child of node {node}, has no entry")
                found[child] = node
        orphans = sorted(node for node in self.nodes if node and -node not in found)
        if orphans:
            raise ConfigError(f"tree: node {orphans[0]} has no parent")
        ranks = sorted(child for child in found if child >= 0)
        if ranks != list(range(len(ranks))):
            raise ConfigError(f"tree: ranks are {ranks}, must be 0..n-1")
        below = [wire.ROOT_NODE]
        for node in below:  # grows meanwhile
            below += [-child for child in self.nodes[node] if child < 0]
        if circle := self.nodes.keys() - below:
            raise ConfigError(f"tree: node {min(circle)} is not below the root, but in a circle")

    @classmethod
    def star(cls, size: int) -> Self:
        """Return the tree of one switch to which all ranks are connected."""
        return cls({wire.ROOT_NODE: tuple(range(size))})

    @classmethod
    def of(cls, nodes: Mapping[int, Sequence[int]]) -> Self:
        """Return the tree with these children by node, in sequences of any kind."""
        return cls({node: tuple(children) for node, children in nodes.items()})

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read an object from `to_json`. Raises ConfigError with the reason."""
        if not isinstance(value, Mapping):
            raise ConfigError(f"tree is {value!r}, must be an object: node id to a list of children")
        nodes: dict[int, tuple[int, ...]] = {}
        for key, children in value.items():
            try:
                node = int(key)
            except (TypeError, ValueError):
                raise ConfigError(f"tree: node id is {key!r}, must be a number") from None
            if not isinstance(children, Sequence) or not all(type(child) is int for child in children):
                raise ConfigError(f"tree: children of node {node} are {children!r}, must be whole numbers")
            nodes[node] = tuple(children)
        return cls(nodes)

    def to_json(self) -> dict[str, list[int]]:
        """Return the tree as an object for JSON, with strings for keys."""
        return {str(node): list(children) for node, children in self.nodes.items()}

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(child >= 0 for children in self.nodes.values() for child in children)

    @property
    def result_bitmap(self) -> int:
        """Bitmap that every result carries: all children of the root have contributed."""
        return self.full_bitmap(wire.ROOT_NODE)

    def fan_in(self, node: int) -> int:
        """Return the number of contributions that complete a sum at this node."""
        return len(self.nodes[node])

    def full_bitmap(self, node: int) -> int:
        """Return the bitmap of a complete sum at this node."""
        return (1 << len(self.nodes[node])) - 1

    def parent(self, child: int) -> tuple[int, int]:
        """Return the parent node of a child (see the module), and the child's bitmap there: one bit.

        Raises KeyError for the root, and for a child that is not in the tree.
        """
        for node, children in self.nodes.items():
            if child in children:
                return node, 1 << children.index(child)
        raise KeyError(child)

    def path(self, rank: int) -> tuple[tuple[int, int], ...]:
        """Return the path of a rank's contribution, from the rank's own switch up to the root.

        Each item is (node, bitmap): `bitmap` has the bit of the node's child on the path.
        """
        steps = [self.parent(rank)]
        while steps[-1][0] != wire.ROOT_NODE:
            steps.append(self.parent(-steps[-1][0]))
        return tuple(steps)

    def ranks_under(self, node: int, bitmap: int | None = None) -> tuple[int, ...]:
        """Return the ranks below the children of a node in `bitmap` (default: all children), in order.

        Bits beyond the node's children, and nodes that are not in the tree, stand for no rank.
        """
        children = self.nodes.get(node, ())
        stack = [child for bit, child in enumerate(children) if bitmap is None or bitmap >> bit & 1]
        ranks: list[int] = []
        while stack:
            child = stack.pop()
            if child >= 0:
                ranks.append(child)
            else:
                stack.extend(self.nodes[-child])
        return tuple(sorted(ranks))

    def missing(self, bitmaps: Mapping[int, int]) -> tuple[int, ...]:
        """Return the ranks, in order, whose contributions are missing.

        `bitmaps` maps nodes to the bitmaps of their sums.

        If a missing child is a node in `bitmaps`, its bitmap shows which ranks below
        the node are missing.

        >>> Tree.of({0: (-1, 2, 3), 1: (0, 1)}).missing({0: 0b100, 1: 0b10})
        (0, 2)
        """
        ranks: set[int] = set()
        for node, bitmap in bitmaps.items():
            for bit, child in enumerate(self.nodes.get(node, ())):
                if bitmap >> bit & 1:
                    continue
                if child >= 0:
                    ranks.add(child)
                elif -child not in bitmaps:
                    ranks.update(self.ranks_under(-child))
        return tuple(sorted(ranks))
