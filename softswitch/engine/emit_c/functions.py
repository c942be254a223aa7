"""C functions for actions and blocks, and which variables are local to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import all_statements, statement_expressions, subexpressions
from softswitch.engine.emit_c.expressions import Expressions
from softswitch.engine.emit_c.externs import HANDLERS
from softswitch.engine.emit_c.lanes import reads, write_statements
from softswitch.engine.emit_c.statements import Body, Handler
from softswitch.engine.emit_c.text import PARAMETERS, RESERVED, Names, Writer, comment, is_wide, storage_type
from softswitch.engine.emit_c.unit import Unit
from softswitch.engine.emit_c.walk import variables_read_first

MAX_INLINE_LINES = 40
"""Actions up to this long are always inlined: then the compiler keeps variables in registers."""


@dataclass(frozen=True, slots=True)
class Locals:
    """The functions that mention each scalar variable; it can be local to a single one."""

    users: dict[str, set[str]]

    def nowhere_else(self, program: ir.Program) -> set[str]:
        """Return the variables that are C locals wherever they are, or are not used at all."""
        found = set()
        for name, users in self.users.items():
            (user,) = users if len(users) == 1 else ("",)
            kind, _, action = user.partition(" ")
            if kind == "action":
                is_local = name not in variables_read_first(program.actions[action].body, set())
            else:
                is_local = not users or kind not in ("", "table")
            if is_local:
                found.add(name)
        return found

    def of(self, function: str) -> set[str]:
        """Return the variables that only `function` mentions."""
        return {name for name, users in self.users.items() if users == {function}}


def find_locals(program: ir.Program) -> Locals:
    """Find the functions that use each variable.

    Functions are those of `ir.Program.parsers` and `ir.Program.blocks`, ``action X`` and ``table X``.
    """
    users: dict[str, set[str]] = {
        name: set()
        for name, type_ in program.variables.items()
        if isinstance(type_, ir.Bits | ir.Bool | ir.Enum) and not is_wide(type_)
    }

    def use(function: str, exprs: Iterable[ir.Expr]) -> None:
        for outer in exprs:
            for expr in subexpressions(outer):
                if isinstance(expr, ir.Var) and expr.name in users:
                    users[expr.name].add(function)

    def use_body(function: str, body: Sequence[ir.Stmt]) -> None:
        for statement in all_statements(body):
            use(function, statement_expressions(statement))

    for parser, states in program.parsers.items():
        for state in states.values():
            use_body(parser, state.body)
            use(parser, state.transition.subjects)
    for name, action in program.actions.items():
        use_body(f"action {name}", action.body)
    for name, table in program.tables.items():
        use(f"table {name}", (key.expr for key in table.keys))
        use(f"table {name}", (cell.place for cell in table.cells))
        if table.direct_meter is not None:
            users[program.meters[table.direct_meter].colour].add(f"table {name}")
        for reference in (table.default.action, *(ref.action for ref in table.actions)):
            for param in program.actions[reference].params:
                users.setdefault(param.variable, set()).add(f"table {name}")
    for block, body in program.blocks.items():
        use_body(block, body)
    return Locals(users)


def open_body(
    unit: Unit,
    out: Writer,
    local: Iterable[str],
    *,
    leave: str,
    leave_block: str | None = None,
    extra: dict[str, Handler] | None = None,
    in_parser: bool = False,
) -> Body:
    """Return a body to write a function with, after declaring its local variables as zero."""
    names = Names()
    for reserved in (*RESERVED, "slot"):
        names.unique(reserved)
    renamed = {}
    for variable in sorted(local):
        type_ = unit.program.variables[variable]
        assert isinstance(type_, ir.Bits | ir.Bool | ir.Enum)
        renamed[variable] = names.unique(variable.rsplit(".", 1)[-1])
        out.line(f"{storage_type(type_)} {renamed[variable]} = 0;")
    return Body(
        unit=unit,
        out=out,
        expressions=Expressions(unit.homes, locals=renamed),
        leave_body=leave,
        leave_block=leave if leave_block is None else leave_block,
        extern_handlers={**HANDLERS, **(extra or {})},
        roll=write_statements,
        in_parser=in_parser,
    )


def emit_actions(unit: Unit, locals_: Locals, out: Writer) -> None:
    """Write one function per action; those that may exit the block return true if they did."""
    for name in unit.program.actions:
        result = "int" if name in unit.leaving_actions else "void"
        out.line(f"static {result} action_{unit.action_names[name]}({PARAMETERS});")
    out.line()
    for name, action in unit.program.actions.items():
        leaving = name in unit.leaving_actions
        written = Writer()
        local = locals_.of(f"action {name}") - variables_read_first(action.body, set())
        with written.indented():
            written.line("(void)s, (void)p, (void)v;")
            leave = "return 0;" if leaving else "return;"
            body = open_body(unit, written, local, leave=leave, leave_block="return 1;")
            body.reads = reads(action.body)
            body.statements(action.body)
            if leaving:
                written.line("return 0;")
        out.lines += body.loops.lines
        out.line(f"/* action {name}, {comment(action.pos)} */")
        kind = "P4_INLINE" if len(written.lines) <= MAX_INLINE_LINES else "P4_FUNCTION"
        result = "int" if leaving else "void"
        with out.block(f"{kind} {result} action_{unit.action_names[name]}({PARAMETERS})"):
            out.lines += written.lines
        out.line()


def emit_block(unit: Unit, locals_: Locals, name: str, out: Writer) -> None:
    """Write one of the blocks that only run statements: verify, ingress, egress, compute."""
    statements: Sequence[ir.Stmt] = getattr(unit.program, name)
    written = Writer()
    with written.block(f"P4_FUNCTION void run_{name}({PARAMETERS})"):
        written.line("(void)s, (void)p, (void)v;")
        body = open_body(unit, written, locals_.of(name), leave="return;")
        body.reads = reads(statements)
        body.statements(statements)
    out.lines += body.loops.lines + written.lines
    out.line()
