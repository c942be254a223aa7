"""Three-layer trees of switches, and the aggregation trees that jobs can have there.

Random draws as libc++ makes them, with which the published results were made.

The engine is the minimal standard one (Park and Miller, 1988, with the multiplier of 1993); whole numbers
are its lowest bits, drawn again if out of range; fractions are made of two of its numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final, TypeVar

MULTIPLIER: Final = 48271
MODULUS: Final = 2**31 - 1
RANGE: Final = MODULUS - 1
BITS: Final = 30
"""Whole bits of each number."""

T = TypeVar("T")


class Draws:
    """A sequence of draws.

    >>> draws = Draws(42)
    >>> [draws.below(10) for _ in range(5)], draws.fraction() < 1
    ([5, 6, 4, 6, 1], True)
    """

    def __init__(self, seed: int) -> None:
        self._state = seed % MODULUS or 1

    def _next(self) -> int:
        self._state = self._state * MULTIPLIER % MODULUS
        return self._state - 1

    def below(self, count: int) -> int:
        """Return a whole number from 0 to `count` - 1, at most 2**30 of them."""
        if count == 1:
            return 0
        bits = (count - 1).bit_length()
        fitting = RANGE >> bits << bits
        while True:
            drawn = self._next()
            if drawn < fitting and (value := drawn & (1 << bits) - 1) < count:
                return value

    def fraction(self) -> float:
        """Return a number from 0 to below 1."""
        low, high = float(self._next()), float(self._next())
        return (low + high * RANGE) / (float(RANGE) * RANGE)

    def weighted(self, weights: Sequence[float]) -> int:
        """Return an index, with chances proportional to weights."""
        total = sum(weights)
        return bisect_right(list(accumulate(weight / total for weight in weights[:-1])), self.fraction())

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` of the items, or all if they are fewer, in their order."""
        chosen: list[T] = []
        left = min(count, len(items))
        for at, item in enumerate(items):
            if left and self.below(len(items) - at) < left:
                chosen.append(item)
                left -= 1
        return chosen


@dataclass(frozen=True, slots=True)
class Tree:
    """The switches that sum a job, as numbers, and as the bits of one number; a job on one host has none."""

    switches: tuple[int, ...]
    bits: int

    @classmethod
    def of(cls, switches: Sequence[int]) -> Tree:
        """Return the tree of these switches."""
        return cls(tuple(switches), sum(1 << number for number in switches))

    def meets(self, other: Tree) -> bool:
        """Return whether both have a switch in common."""
        return bool(self.bits & other.bits)


@dataclass(frozen=True)
class Fabric:
    """Hosts in racks, racks in pods, and pods under the core.

    Hosts are numbered rack by rack, racks pod by pod. Switches are numbered layer by layer: the
    racks', the pods', of which each has `above_rack` linked to all of its racks, and the core's, of which
    every `above_rack`-th is linked to the same switch of every pod.
    """

    hosts_in_rack: int = 8
    racks_in_pod: int = 8
    pods: int = 16
    above_rack: int = 8
    above_pod: int = 8

    @cached_property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.racks * self.hosts_in_rack

    @cached_property
    def racks(self) -> int:
        """Number of racks."""
        return self.racks_in_pod * self.pods

    @cached_property
    def switches(self) -> int:
        """Number of switches."""
        return self.racks + self.pods * self.above_rack + self.above_rack * self.above_pod

    def roots(self, hosts: Sequence[int]) -> int:
        """Return the number of possible roots of a tree over these hosts, in the lowest possible layer."""
        racks = {host // self.hosts_in_rack for host in hosts}
        if len(racks) == 1:
            return 1
        if len({rack // self.racks_in_pod for rack in racks}) == 1:
            return self.above_rack
        return self.above_rack * self.above_pod

    def tree(self, hosts: Sequence[int], root: int) -> Tree:
        """Return the tree over these hosts with the root of this number, from 0 to below `roots`."""
        if len(hosts) == 1:
            return Tree((), 0)
        racks = sorted({host // self.hosts_in_rack for host in hosts})
        if len(racks) == 1:
            return Tree.of(racks)
        pods = sorted({rack // self.racks_in_pod for rack in racks})
        plane, core = root % self.above_rack, root // self.above_rack
        middle = [self.racks + pod * self.above_rack + plane for pod in pods]
        if len(pods) == 1:
            return Tree.of([*racks, *middle])
        top = self.racks + self.pods * self.above_rack + core * self.above_rack + plane
        return Tree.of([*racks, *middle, top])
