"""Paths side by side: what leaves a body and how, and what is done where there are too many."""

from __future__ import annotations

from dataclasses import dataclass, field

from softswitch.compiler.undefined.state import State, merged

MOST_STATES = 512
"""Paths at one point."""
MOST_IN_LOOPS = 16
"""Paths at one point of a loop, or anywhere after `MOST_STEPS` statements: a program has to end some time."""
MOST_STEPS = 150_000

DROP_PORT = 511
PARSER_ERROR = "standard_metadata/parser_error"
SPEC = "standard_metadata/egress_spec"
GROUP = "standard_metadata/mcast_grp"

Seen = set[tuple[frozenset[object], ...]]


@dataclass(slots=True)
class Leaves:
    """The paths that leave a body, by how they do."""

    returned: list[State] = field(default_factory=list)
    exited: list[State] = field(default_factory=list)
    broken: list[State] = field(default_factory=list)
    continued: list[State] = field(default_factory=list)
    stopped: list[State] = field(default_factory=list)  # with a parser error


class Paths:
    """Keeps paths few; `steps` are the statements done so far, once for each path."""

    def __init__(self) -> None:
        self.steps = 0

    def few(self, states: list[State], most: int = MOST_STATES) -> list[State]:
        """Return the states, each once; those with the same headers as one, if there are too many."""
        if len(states) < 2:
            return states
        different = {state.key(): state for state in states}
        most = most if self.steps < MOST_STEPS else MOST_IN_LOOPS
        for facts in (2, 1, 0):  # the same headers valid and values unset, the same headers, anything
            if len(different) <= most:
                break
            alike: dict[tuple[object, ...], list[State]] = {}
            for state in different.values():
                alike.setdefault(state.key()[1 : 1 + facts], []).append(state)
            different = {one.key(): one for one in map(merged, alike.values())}
        return list(different.values())


def fresh(seen: Seen, state: State) -> bool:
    """Return whether a state is none of those seen, and note it."""
    key = state.key()
    if key in seen:
        return False
    seen.add(key)
    return True
