"""Effects of tables on a packet: constant entries as far as keys are known, any action otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from softswitch.compiler import ir
from softswitch.compiler.undefined.conditions import matching, not_matching
from softswitch.compiler.undefined.paths import Leaves
from softswitch.compiler.undefined.reads import Reader
from softswitch.compiler.undefined.state import State
from softswitch.compiler.undefined.values import anything, constant

Called = Callable[[str, list[State], Leaves], list[State]]
"""Does the body of an action."""


class Tables:
    """Applies tables."""

    def __init__(self, program: ir.Program, reader: Reader, called: Called) -> None:
        self._program = program
        self._reader = reader
        self._called = called

    def apply(self, s: ir.Apply, state: State, leaves: Leaves) -> list[State]:
        """Return the possible states of a packet after a table."""
        table = self._program.tables[s.table]
        for key in table.keys:
            self._reader.reads(key.expr, state)
        after: list[State] = []
        subjects = [key.expr for key in table.keys]
        rest: State | None = state
        for entry in table.entries if table.keys else ():
            matched = matching(rest.copy(), subjects, entry.patterns) if rest is not None else None
            if matched is not None:
                after += self._run(s, table, matched, entry.invocation.action, entry.invocation.args, leaves)
            if rest is not None and table.const_entries:
                left = not_matching(rest, subjects, entry.patterns, split=False)
                rest = left[0] if left else None
        if rest is None:
            return after
        if table.keys and not table.const_entries:
            for ref in table.actions:
                if ref.scope != "default_only":
                    after += self._run(s, table, rest.copy(), ref.action, None, leaves)
        if table.const_default:
            return after + self._run(
                s, table, rest, table.default.action, table.default.args, leaves, hit=False
            )
        for ref in table.actions:
            if ref.scope != "table_only":
                after += self._run(s, table, rest.copy(), ref.action, None, leaves, hit=False)
        return after

    def _run(
        self,
        s: ir.Apply,
        table: ir.Table,
        state: State,
        name: str,
        args: Sequence[int] | None,
        leaves: Leaves,
        *,
        hit: bool = True,
    ) -> list[State]:
        """Run one of a table's actions; without `args`, with any that the control plane may give."""
        names = [ref.action for ref in table.actions]
        if s.hit is not None:
            state.assign(s.hit, constant(int(hit)))
        if s.action is not None:
            state.assign(s.action, constant(names.index(name)) if name in names else None)
        if table.direct_meter is not None:
            state.values.pop(self._program.meters[table.direct_meter].colour, None)
        if name not in self._program.actions:  # a group of an action profile
            return [state]
        params = self._program.actions[name].params
        for number, param in enumerate(params):
            known = anything(param.type, trusted=True) if args is None else constant(args[number])
            state.values[param.variable] = known
            state.unset.pop(param.variable, None)
        return self._called(name, [state], leaves)
