"""Headers of which most bytes pass as they came: only fields that something touches become C integers.

Between the gresses of Tofino a packet is bytes, so every header is parsed and deparsed twice, and few of its
fields are looked at each time. Such a header is written as a copy of the bytes that it was extracted from,
and over it what may have been assigned. Only its fields may be used: no copies and no comparisons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import (
    Path,
    all_statements,
    bodies,
    child_expressions,
    member_path,
    statement_expressions,
)
from softswitch.engine.emit_c.walk import frame_sums

_TARGETED = ("register.read", "meter.execute_meter", "hash", "random")
"""Externs that assign to their first argument, and read the others."""
_READERS = ("register.write", "counter.count", "direct_counter.count", "digest", "mirror", "resubmit")


@dataclass(slots=True)
class Uses:
    """The fields of headers that a program reads and writes, by the header's path."""

    read: defaultdict[Path, set[str]] = field(default_factory=lambda: defaultdict(set))
    written: defaultdict[Path, set[str]] = field(default_factory=lambda: defaultdict(set))
    whole: set[Path] = field(default_factory=set)  # used as a whole, with all that is in it

    def is_by_field(self, header: Path) -> bool:
        """Return True if nothing but fields is used of a header."""
        return not any(header[:end] in self.whole for end in range(1, len(header) + 1))

    def _mention(self, expr: ir.Expr, *, written: bool = False) -> None:
        match expr:
            case ir.Member(_, base, name) if isinstance(base.type, ir.Header) and (path := member_path(base)):
                (self.written if written else self.read)[path].add(name)
                if not isinstance(expr.type, ir.Scalar):
                    self.whole.add(path)
            case ir.IsValid(_, header) if member_path(header):
                pass
            case ir.Slice(_, base):
                self._mention(base, written=written)
                self._mention(base)
            case _:
                path = member_path(expr)
                if path is not None and not isinstance(expr.type, ir.Scalar):
                    self.whole.add(path)
                for child in child_expressions(expr):
                    if path is None:
                        self._mention(child)

    def _statement(self, s: ir.Stmt) -> None:
        match s:
            case ir.Assign(target, value):
                self._mention(target, written=True)
                self._mention(value)
            case ir.Extract(header) | ir.Emit(header) | ir.SetValidity(header) if member_path(header):
                for expr in statement_expressions(s):
                    if expr is not header:
                        self._mention(expr)
            case ir.Apply():
                for expr in statement_expressions(s):
                    self._mention(expr, written=True)
            case ir.Extern(function, _, args) if function not in _READERS:
                for expr in args[0]:
                    self._mention(expr, written=True)
                for expr in (expr for arg in args[0 if function not in _TARGETED else 1 :] for expr in arg):
                    self._mention(expr)
            case _:
                for expr in statement_expressions(s):
                    self._mention(expr)


def find_uses(program: ir.Program) -> Uses:
    """Find what is used of the headers of a program."""
    uses = Uses()
    for body in bodies(program):
        sums = frame_sums(body)
        for statement in all_statements(body):
            if id(statement) in sums and isinstance(statement, ir.Extern):
                uses._mention(statement.args[0][0], written=True)
                uses._mention(statement.args[3][0])
            else:
                uses._statement(statement)
    subjects: Iterable[ir.Expr] = (
        subject
        for states in program.parsers.values()
        for state in states.values()
        for subject in state.transition.subjects
    )
    keys = (key.expr for table in program.tables.values() for key in table.keys)
    for expr in (*subjects, *keys):
        uses._mention(expr)
    return uses
