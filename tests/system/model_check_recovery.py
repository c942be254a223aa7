"""How long it takes at most, once nothing goes wrong any more, until everybody has everything.

Theory of operation
-------------------
Time is counted in *rounds*. In a round every part whose time-outs count lets one be over, in any order, each
when nothing is under way any more; what is sent meanwhile is delivered, in any order too. A round is what a
network does in its longest time-out: no clock is so slow that another's is over twice before its own is once.
A state's recovery is the most rounds that the worst orders can make of it: the longest way to a done state.

The longest way is endless if the same state comes twice on it, at the same place of a round: the parties
could go on like that for good. So could they if packets called forth each other without a time-out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


class Network(Protocol):
    """What can happen next, where nothing goes wrong; states are anything that can be a key."""

    @property
    def timers(self) -> int:
        """How many parts have time-outs."""
        ...

    def fire(self, state: Any, timer: int) -> Any:
        """Return what comes of a state with nothing under way when a part's time-out is over."""
        ...

    def deliveries(self, state: Any) -> Iterator[Any]:
        """Yield what comes of the delivery of each packet under way; nothing if there is none."""
        ...

    def outstanding(self, state: Any) -> frozenset[tuple[int, int]]:
        """Return the packets whose result somebody lacks."""
        ...


@dataclass(frozen=True, slots=True)
class Recovery:
    """The longest ways to done states."""

    quiet: int = 0
    """States with nothing under way that they lead through."""
    rounds: float = 0.0
    """Of the longest; infinite if there is an endless one."""
    rounds_per_packet: float = 0.0
    """The most rounds for each packet whose result somebody lacks."""


def recovery(states: Iterable[Any], network: Network) -> Recovery:
    """Return what can be said of the ways from all these states on."""
    ways = _Ways(network)
    begins: set[Any] = set()
    try:
        for state in states:
            begins |= ways.settled(state)
    except _Endless:
        return Recovery(rounds=math.inf, rounds_per_packet=math.inf)
    rounds = {state: ways.rounds(state) for state in begins if network.outstanding(state)}
    return Recovery(
        len(ways.memory),
        max(rounds.values(), default=0.0),
        max((value / len(network.outstanding(state)) for state, value in rounds.items()), default=0.0),
    )


class _Endless(Exception):
    """Deliveries lead back to the state that they began with."""


class _Ways:
    def __init__(self, network: Network) -> None:
        self._network = network
        self._settled: dict[Any, frozenset[Any] | None] = {}
        self._all = (1 << network.timers) - 1
        self.memory: dict[tuple[Any, int], float] = {}

    def settled(self, state: Any) -> frozenset[Any]:
        """Return the states with nothing under way to which deliveries in some order lead."""
        if state not in self._settled:
            self._settled[state] = None
            after = [self.settled(delivered) for delivered in self._network.deliveries(state)]
            self._settled[state] = frozenset().union(*after) if after else frozenset({state})
        found = self._settled[state]
        if found is None:
            raise _Endless
        return found

    def rounds(self, state: Any) -> float:
        """Return the most rounds until all is done, the one that begins now included."""
        return self._most(state, 0)

    def _most(self, state: Any, fired: int) -> float:
        """Return that for a state in the midst of a round, without the round."""
        if not self._network.outstanding(state):
            return 0.0
        known = self.memory.get((state, fired))
        if known is not None:
            return known
        self.memory[state, fired] = math.inf  # until it is known: who comes here again goes round in circles
        most = 0.0
        for timer in range(self._network.timers):
            after = fired | 1 << timer
            if after != fired:
                begun = float(fired == 0)
                left = 0 if after == self._all else after
                for settled in self.settled(self._network.fire(state, timer)):
                    most = max(most, begun + self._most(settled, left))
        self.memory[state, fired] = most
        return most
