"""Where a program depends on what P4 leaves undefined: all its paths, explored.

Each path has a `State`; conditions, tables and parser states split it, and constant entries are looked up
as far as the keys are known. What is found is an upper bound: a path that no packet takes may be among
those explored, one that a packet takes never is left out. Beyond `MOST_STATES` paths at one point, those
with the same headers become one.

What the control plane sets (entries, default actions) is taken to be what the program needs: an index that
depends on nothing else is in range. Everything in a packet, register or port number may have any value.

A plain copy of an undefined value is no dependence, but its target is undefined, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from softswitch.compiler import ir
from softswitch.compiler.source import NOWHERE
from softswitch.compiler.undefined.conditions import Finding, Reader, matching, not_matching
from softswitch.compiler.undefined.state import (
    DROP_PORT,
    GROUP,
    MOST_STATES,
    PARSER_ERROR,
    SPEC,
    Leaves,
    Paths,
    Seen,
    State,
    fresh,
    headers_below,
    scalars_below,
    stacks_below,
)
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


def find(program: ir.Program) -> list[Finding]:
    """Return where a program, as `lower` made it, depends on undefined behaviour, in source order."""
    return sorted(_Explorer(program).run(), key=lambda it: (it.pos.file, it.pos.line, it.pos.column))


class _Explorer:
    """The blocks of the pipeline, one after the other."""

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._reader = Reader()
        self._paths = Paths()
        self._statements = Statements(program, self._reader, self._paths)

    def run(self) -> Iterable[Finding]:
        """Follow a packet from the parser to the deparser, and return what is found."""
        program = self._program
        parsed = Parser(program, self._reader, self._paths, self._statements).parse()
        states = self._block(program.verify, [state.copy() for state in parsed])
        for state in states:
            state.values |= {SPEC: constant(0), GROUP: constant(0)}
        states = self._block(program.ingress, states)
        leaving = self._leaving([self._departing(state) for state in states if _goes_on(state)])
        if self._statements.steps.externs.clones:
            leaving += self._leaving([self._departing(clone) for clone in self._cloned(parsed)])
        states = self._block(program.compute, self._paths.few(leaving))
        self._block(program.deparser, states)
        return self._reader.found

    def _leaving(self, states: list[State]) -> list[State]:
        """Return the states of packets after egress, except dropped ones."""
        states = self._block(self._program.egress, states)
        return [state for state in states if state.values.get(SPEC) != constant(DROP_PORT)]

    def _departing(self, state: State) -> State:
        """Return a packet at the beginning of egress, where variables and standard metadata are new."""
        for facts in state.all_facts():
            for name in [name for name in facts if name.partition("/")[0] not in ("hdr", "meta")]:
                del facts[name]
        for name, type_ in self._program.variables.items():
            state.valid |= dict.fromkeys(headers_below(type_, name), False)
        state.values[SPEC] = constant(0)
        return state

    def _block(self, body: Sequence[ir.Stmt], states: list[State]) -> list[State]:
        leaves = Leaves()
        states = self._statements.body(body, states, leaves)
        return self._paths.few(states + leaves.returned + leaves.exited)

    def _cloned(self, parsed: Iterable[State]) -> list[State]:
        """Return the states of clones, which are parsed again, and keep some metadata."""
        clones = []
        for state in parsed:
            state.drop(ir.Var(self._program.meta, "meta", NOWHERE))
            clear_metadata(self._program, state)
            clones.append(state)
        return clones


def _goes_on(state: State) -> bool:
    """Return False for a packet that ingress has dropped."""
    return not (state.values.get(SPEC) == constant(DROP_PORT) and state.values.get(GROUP) == constant(0))
