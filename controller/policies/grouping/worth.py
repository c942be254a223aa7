"""Groups by worth: merge and drop groups at the least loss of worth until the rest fits.

Muri matches by efficiency alone, pair by pair, and then checks whether the groups fit. Here each job has a
weight, the worth of one second's progress; a group whose round lasts T is worth, per second,

    V = Σ weight_i · alone_i / T

Start with every job alone. While more GPUs are needed than there are, merge the two groups, or drop the
group, that loses the least worth per freed GPU. Then improve: as long as it gains worth, move a job into
another group, exchange two jobs of different groups, or let a dropped job join a group or replace a member.

Ours; the first step is agglomerative clustering with a budget, the second hill climbing over moves and
exchanges. It runs in C (`controller._native`), in as many steps as its twin in Python takes
(`tests.twins.worth`), and with the same result.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller import _native
from controller.errors import BadSpec

Kinds = tuple[int, ...]
"""Kinds of a group's members, in ascending order."""


@dataclass(slots=True)
class Item:
    """A job to group: its kind (jobs of one kind interleave alike), GPUs, seconds per iteration, weight.

    Below, what is believed of the rest of it: iterations, seconds alone, and seconds of a start.
    """

    kind: int
    gpus: int
    alone_s: float
    weight: float = 0.0
    iterations: float = 0.0
    left_s: float = 0.0
    restart_s: float = 0.0


class Rounds:
    """Lengths of rounds by the kinds of a group's members; each is computed once.

    `length_s(kinds)` computes a length in seconds; `members` is the largest group, at most 4. The length of a
    rounds object is the number of compositions that groupings have come across.
    """

    def __init__(self, length_s: Callable[[Kinds], float], members: int) -> None:
        """Know no length yet. Raises NativeMissing, and BadSpec for other numbers of members."""
        if not 1 <= members <= _native.MEMBERS:
            raise BadSpec(f"groups of {members} jobs; 1 to {_native.MEMBERS} are possible")
        self._library = _native.load()
        self._length_s = length_s
        self.members = members
        self._known: dict[Kinds, float] = {}
        self._asked = (ctypes.c_int32 * (_native.MEMBERS * _native.MISSING))()
        self.pointer: int = self._library.weave_rounds_new(members)
        if not self.pointer:
            raise MemoryError("lengths of rounds")
        weakref.finalize(self, self._library.weave_rounds_free, self.pointer)

    def __reduce__(self) -> tuple[object, ...]:
        """Have `pickle` and `copy` make another object in C, which asks for the known lengths again."""
        return _known_rounds, (self._length_s, self.members, self._known)

    def __len__(self) -> int:
        return int(self._library.weave_rounds_counted(self.pointer))

    def of(self, kinds: Kinds) -> float:
        """Return the length of a round in seconds; infinite for an empty group and for too many members."""
        if not 0 < len(kinds) <= self.members:
            return math.inf
        found = self._known.get(kinds)
        if found is None:
            found = self._known[kinds] = self._length_s(kinds)
        return found

    def answered(self, status: int) -> bool:
        """Return whether a function of the library is done.

        If it asked for lengths of rounds, it has them now, and is to be called again. Raises MemoryError.
        """
        if status == _native.DONE:
            return True
        if status != _native.ASKS:
            raise MemoryError("grouping jobs")
        width = _native.MEMBERS
        for number in range(self._library.weave_rounds_missing(self.pointer, self._asked)):
            padded = self._asked[number * width : (number + 1) * width]
            kinds = tuple(kind for kind in padded if kind >= 0)
            self._library.weave_rounds_put(
                self.pointer, (ctypes.c_int32 * width)(*kinds), len(kinds), self.of(kinds)
            )
        return False


def _known_rounds(length_s: Callable[[Kinds], float], members: int, known: dict[Kinds, float]) -> Rounds:
    rounds = Rounds(length_s, members)
    rounds._known = known
    return rounds


def group_by_worth(
    items: Sequence[Item], rounds: Rounds, gpus: int, *, improve: bool = True
) -> list[tuple[int, ...]]:
    """Return groups, as positions in `items`, that need at most `gpus` GPUs together.

    O(n^3) at most for n jobs of one size, O(n^2) for each exchange.

    Args:
        items: The jobs to group.
        rounds: Lengths of rounds by the members' kinds.
        gpus: Number of GPUs there are.
        improve: Do the second step, moves and exchanges.

    Returns:
        The groups. Jobs in none of them are dropped.
    """
    sizes = [item.gpus for item in items]
    if sum(sizes) <= gpus:
        return [(number,) for number in range(len(items))]
    columns = (
        array("i", [item.kind for item in items]),
        array("i", sizes),
        array("d", [item.alone_s for item in items]),
        array("d", [item.weight for item in items]),
    )
    pointers = [column.buffer_info()[0] for column in columns]
    found = array("i", bytes(4 * (2 * len(items) + 1)))
    into = found.buffer_info()[0]
    call = _native.load().weave_group
    while not rounds.answered(call(rounds.pointer, len(items), *pointers, gpus, improve, into)):
        pass
    groups: list[tuple[int, ...]] = []
    numbers = found.tolist()
    at = 0
    while numbers[at] != _native.LAST:
        behind = numbers.index(_native.BEHIND, at)
        groups.append((*numbers[at:behind],))
        at = behind + 1
    return groups
