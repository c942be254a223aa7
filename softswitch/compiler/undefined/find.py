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
from softswitch.compiler.position import NOWHERE
from softswitch.compiler.undefined.parser import Parser, clear_metadata
from softswitch.compiler.undefined.paths import DROP_PORT, GROUP, SPEC, Leaves, Paths
from softswitch.compiler.undefined.reads import Finding, Reader
from softswitch.compiler.undefined.state import State, headers_below
from softswitch.compiler.undefined.statements import Statements
from softswitch.compiler.undefined.values import constant


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
