"""How often a packet may meet a register: a chip has it at one place of its pipeline, and lets it do so once.

This is an upper bound: conditions that exclude each other are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.lowering.remarks import remark


def check_accesses(
    blocks: Iterable[tuple[ir.Stmt, ...]],
    actions: Mapping[str, ir.Action],
    tables: Mapping[str, ir.Table],
    arrays: Mapping[str, ir.RegisterArray],
    *,
    refuse: bool,
) -> None:
    """Remark on registers that a packet may meet more than once, or refuse them.

    Args:
        blocks: What a packet runs, in one gress or the other.
        actions: The program's actions.
        tables: Its tables.
        arrays: Its registers.
        refuse: Raise CompileError for the first.
    """
    register_of = {part: name for name, array in arrays.items() for part in array.parts}
    counting = _Counting(actions, tables, register_of)
    total: Counter[str] = Counter()
    for body in blocks:
        total += counting.of(body)
    for name, times in total.items():
        if times > 1:
            message = f"a packet may meet register {name!r} {times} times"
            if refuse:
                raise CompileError(message, arrays[name].pos, "once, as on a chip")
            remark(f"{message}: a chip lets it do so once", arrays[name].pos)


class _Counting:
    def __init__(
        self, actions: Mapping[str, ir.Action], tables: Mapping[str, ir.Table], register_of: Mapping[str, str]
    ) -> None:
        self._actions = actions
        self._tables = tables
        self._register_of = register_of

    def of(self, body: Iterable[ir.Stmt]) -> Counter[str]:
        """Return how often each register is met on the way through `body` that meets it most."""
        total: Counter[str] = Counter()
        calls: set[tuple[str, ir.Position]] = set()
        for s in body:
            match s:
                case ir.Extern(function="register.read" | "register.write", instance=part):
                    calls.add((self._register_of[part], s.pos))  # an action's read and write are one call
                case ir.If(_, then, otherwise):
                    total += self.of(then) | self.of(otherwise)
                case ir.Switch(_, cases):
                    total += self._most(inner for _, inner in cases)
                case ir.Scope(inner) | ir.Loop(inner):
                    total += self.of(inner)
                case ir.Call(action=action):
                    total += self.of(self._actions[action].body)
                case ir.Apply(table=table):
                    found = self._tables[table]
                    names = {found.default.action, *(ref.action for ref in found.actions)}
                    total += self._most(self._actions[name].body for name in names)
        return total + Counter(name for name, _ in calls)

    def _most(self, bodies: Iterable[Iterable[ir.Stmt]]) -> Counter[str]:
        most: Counter[str] = Counter()
        for body in bodies:
            most |= self.of(body)
        return most
