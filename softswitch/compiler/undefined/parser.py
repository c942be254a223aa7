"""The parser on all paths, state by state."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.undefined.conditions import matching, not_matching
from softswitch.compiler.undefined.paths import MOST_STATES, PARSER_ERROR, Leaves, Paths, Seen, fresh
from softswitch.compiler.undefined.reads import Reader
from softswitch.compiler.undefined.state import State, headers_below, scalars_below, stacks_below
from softswitch.compiler.undefined.statements import Statements
from softswitch.compiler.undefined.values import Range, constant


class Parser:
    """Follows packets through the parser."""

    def __init__(self, program: ir.Program, reader: Reader, paths: Paths, statements: Statements) -> None:
        self._program = program
        self._reader = reader
        self._paths = paths
        self._statements = statements

    def parse(self) -> list[State]:
        """Return the states that packets end the parser in, with its error."""
        program = self._program
        first = State({}, {}, {})
        clear_metadata(program, first)
        for name, type_ in (("hdr", program.hdr), ("meta", program.meta), *program.variables.items()):
            first.valid |= dict.fromkeys(headers_below(type_, name), False)
            first.values |= dict.fromkeys(stacks_below(type_, name), constant(0))
        accepted: list[State] = []
        leaves = Leaves()
        visits: dict[str, int] = {}
        seen: dict[str, Seen] = {}
        work = [("start", first)]
        while work:
            name, state = work.pop()
            if name in ("accept", "reject"):  # neither is an error
                state.values[PARSER_ERROR] = constant(0)
                accepted.append(state)
                continue
            if not fresh(seen.setdefault(name, set()), state):
                continue
            visits[name] = visits.get(name, 0) + 1
            if visits[name] > MOST_STATES:
                state = self._widened(state)
            work += self._parser_state(program.states[name], state, leaves)
        for state in leaves.stopped:
            known = state.values.get(PARSER_ERROR, Range(1, max(1, len(program.errors.members) - 1)))
            state.values[PARSER_ERROR] = known
        return self._paths.few(accepted + leaves.stopped)

    def _widened(self, state: State) -> State:
        """Return the state of a parser that has gone round too often to follow."""
        kept = {place: value for place, value in state.values.items() if place.startswith("meta/")}
        return State({place: _anything_like(value) for place, value in kept.items()}, {}, state.unset.copy())

    def _parser_state(self, node: ir.State, state: State, leaves: Leaves) -> list[tuple[str, State]]:
        transition = node.transition
        states = self._statements.body(node.body, [state], leaves)
        following: list[tuple[str, State]] = []
        for one in states:
            for subject in transition.subjects:
                self._reader.reads(subject, one)
                self._statements.steps.may_fail(subject, one, leaves)
            rest = [one]
            for patterns, target in transition.cases:
                matched = [matching(state.copy(), transition.subjects, patterns) for state in rest]
                following += [(target, state) for state in matched if state is not None]
                rest = [
                    left
                    for state in rest
                    for left in not_matching(state, transition.subjects, patterns, split=True)
                ]
            leaves.stopped += rest  # NoMatch
        return following


def clear_metadata(program: ir.Program, state: State) -> None:
    """Let user metadata be zero, but for what field lists may have kept."""
    kept = {"/".join(path) for paths in program.field_lists.values() for path in paths}
    for place in scalars_below(program.meta, "meta"):
        if place not in kept:
            state.values[place] = constant(0)
    for place in headers_below(program.meta, "meta"):
        state.valid[place] = False


def _anything_like(value: Range) -> Range:
    """Return all values that a place with this one may come to have."""
    return Range(value.low, 1 << 64)
