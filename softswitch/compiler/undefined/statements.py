"""Statements on all paths: what branches splits them, what ends a body is kept apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from softswitch.compiler import ir
from softswitch.compiler.undefined.conditions import assume, matching, not_matching
from softswitch.compiler.undefined.paths import MOST_IN_LOOPS, Leaves, Paths, Seen, fresh
from softswitch.compiler.undefined.reads import Reader
from softswitch.compiler.undefined.state import State, merged
from softswitch.compiler.undefined.steps import Steps
from softswitch.compiler.undefined.tables import Tables

MOST_ROUNDS = 20
"""Of a loop; of what further ones do nothing is known."""


class Statements:
    """Does bodies of statements."""

    def __init__(self, program: ir.Program, reader: Reader, paths: Paths) -> None:
        self._program = program
        self._reader = reader
        self._paths = paths
        self._tables = Tables(program, reader, self._called)
        self.steps = Steps(program, reader, paths)

    def body(self, body: Iterable[ir.Stmt], states: list[State], leaves: Leaves) -> list[State]:
        """Return the paths that come to the end of a body; the others are added to `leaves`."""
        for statement in body:
            if not states:
                break
            states = self._statement(statement, states, leaves)
        return states

    def _statement(self, s: ir.Stmt, states: list[State], leaves: Leaves) -> list[State]:
        match s:
            case ir.If():
                return self._if(s, states, leaves)
            case ir.Switch():
                return self._switch(s, states, leaves)
            case ir.Apply():
                return self._paths.few(
                    [after for state in states for after in self._tables.apply(s, state, leaves)]
                )
            case ir.Call(action=action):
                return self._called(action, states, leaves)
            case ir.Scope(body=body):
                return self._scope(body, states, leaves)
            case ir.Loop():
                return self._loop(s, states, leaves)
            case ir.Return():
                leaves.returned += states
                return []
            case ir.Exit():
                leaves.exited += states
                return []
            case ir.Break():
                leaves.broken += states
                return []
            case ir.Continue():
                leaves.continued += states
                return []
            case ir.Verify():
                return self.steps.verify(s, states, leaves)
            case ir.Extract(header, size):
                return [state for state in states if self.steps.extract(header, size, state, leaves)]
            case _:
                for state in states:
                    self.steps.straight(s, state, leaves)
                return states

    def _if(self, s: ir.If, states: list[State], leaves: Leaves) -> list[State]:
        then, otherwise = [], []
        for state in states:
            self._reader.reads(s.condition, state)
            then += assume(state.copy(), s.condition, True)
            otherwise += assume(state, s.condition, False)
        return self._paths.few(self.body(s.then, then, leaves) + self.body(s.otherwise, otherwise, leaves))

    def _switch(self, s: ir.Switch, states: list[State], leaves: Leaves) -> list[State]:
        after: list[State] = []
        for state in states:
            self._reader.reads(s.subject, state)
        for constants, body in s.cases:
            chosen, states = states if not constants else [], states if constants else []
            for constant_ in constants:
                pattern = ir.Pattern("exact", constant_.value)
                found = [matching(state.copy(), [s.subject], [pattern]) for state in states]
                chosen = chosen + [state for state in found if state is not None]
                states = [
                    left
                    for state in states
                    for left in not_matching(state, [s.subject], [pattern], split=False)
                ]
            after += self.body(body, self._paths.few(chosen), leaves)
        return self._paths.few(after + states)

    def _scope(self, body: Sequence[ir.Stmt], states: list[State], leaves: Leaves) -> list[State]:
        inner = replace(leaves, returned=[])
        states = self.body(body, states, inner)
        return self._paths.few(states + inner.returned)

    def _called(self, action: str, states: list[State], leaves: Leaves) -> list[State]:
        return self._scope(self._program.actions[action].body, states, leaves)

    def _loop(self, s: ir.Loop, states: list[State], leaves: Leaves) -> list[State]:
        inner = replace(leaves, broken=[], continued=[])
        seen: Seen = set()
        for _ in range(MOST_ROUNDS):
            states = [state for state in states if fresh(seen, state)]
            if not states:
                return self._paths.few(inner.broken)
            states = self._round(s, states, inner)
        blank = [State({}, {}, merged(states).unset)] if states else []
        after = self._round(s, blank, inner)
        return self._paths.few(inner.broken + after)

    def _round(self, s: ir.Loop, states: list[State], inner: Leaves) -> list[State]:
        states = self.body(s.body, states, inner)
        going_on = states + inner.continued
        inner.continued = []
        return self._paths.few(
            self.body(s.update, self._paths.few(going_on, MOST_IN_LOOPS), inner), MOST_IN_LOOPS
        )
