"""Aggregation trees: the switches of one job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.vocabulary.errors import BadSpec


@dataclass(frozen=True, slots=True)
class Tree:
    """The switches of a job: a root, the parent of each other switch, and the switches that sum.

    Raises BadSpec.
    """

    root: str
    parents: Mapping[str, str]
    aggregators: frozenset[str]

    def __post_init__(self) -> None:
        if self.root in self.parents:
            raise BadSpec(f"tree: the root {self.root!r} has a parent, {self.parents[self.root]!r}")
        for start in self.parents:
            node, steps = start, 0
            while node != self.root:
                if node not in self.parents or steps > len(self.parents):
                    why = "in a circle" if node in self.parents else f"to {node!r}, which has no parent"
                    raise BadSpec(f"tree: the way up from {start!r} leads {why}; want it to reach the root")
                node, steps = self.parents[node], steps + 1

    @property
    def switches(self) -> tuple[str, ...]:
        """All switches, the root first."""
        return (self.root, *self.parents)
