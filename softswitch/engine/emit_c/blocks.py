"""Write C functions for actions and blocks, and their local variables.

The parser is a function of labels and gotos.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.ir.verify import is_wide
from softswitch.compiler.ir.walk import (
    all_statements,
    frame_sums,
    statement_expressions,
    subexpressions,
    variables_read_first,
)
from softswitch.engine.emit_c.expressions import Expressions
from softswitch.engine.emit_c.externs import HANDLERS
from softswitch.engine.emit_c.lanes import reads, write_statements
from softswitch.engine.emit_c.layout import HeaderHome
from softswitch.engine.emit_c.packet import raw_name
from softswitch.engine.emit_c.statements import BodyWriter, Handler, where_name
from softswitch.engine.emit_c.text import (
    PARAMETERS,
    RESERVED,
    Names,
    Writer,
    c_integer,
    class_bits,
    comment,
    is_signed,
    literal,
    storage_type,
    unparenthesised,
)
from softswitch.engine.emit_c.unit import Translation
from softswitch.engine.pipeline import MAX_FRAME
from softswitch.engine.tofino import is_told

MAX_INLINE_LINES = 40
"""Actions of up to this number of lines are always inlined, so that variables stay in registers."""


@dataclass(frozen=True, slots=True)
class Locals:
    """The functions that mention each scalar variable. A variable of only one function can be local to it."""

    users: dict[str, set[str]]

    def nowhere_else(self, program: ir.Program) -> set[str]:
        """Return the unused variables, and the variables that are C locals of their only function."""
        found = set()
        read_first = {
            f"action {name}": variables_read_first(action.body, set())
            for name, action in program.actions.items()
        }
        for name, users in self.users.items():
            (user,) = users if len(users) == 1 else ("",)
            if user in read_first:
                is_local = name not in read_first[user]
            else:
                is_local = not users or user.partition(" ")[0] not in ("", "table")
            if is_local:
                found.add(name)
        return found

    def of(self, function: str) -> set[str]:
        """Return the variables that only `function` mentions."""
        return {name for name, users in self.users.items() if users == {function}}


def find_locals(program: ir.Program) -> Locals:
    """Find the functions that use each variable.

    Functions are named as in `ir.Program.parsers` and `ir.Program.blocks`, or "action X" and "table X".
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
    unit: Translation,
    out: Writer,
    local: Iterable[str],
    *,
    leave: str,
    leave_block: str | None = None,
    extra: dict[str, Handler] | None = None,
    in_parser: bool = False,
) -> BodyWriter:
    """Write declarations of a function's local variables, set to zero; return the writer of its body."""
    names = Names()
    for reserved in (*RESERVED, "slot"):
        names.unique(reserved)
    renamed = {}
    for variable in sorted(local):
        type_ = unit.program.variables[variable]
        assert isinstance(type_, ir.Bits | ir.Bool | ir.Enum)
        renamed[variable] = names.unique(variable.rsplit(".", 1)[-1])
        out.line(f"{storage_type(type_)} {renamed[variable]} = 0;")
    return BodyWriter(
        unit=unit,
        out=out,
        expressions=Expressions(unit.homes, locals=renamed),
        leave_body=leave,
        leave_block=leave if leave_block is None else leave_block,
        extern_handlers={**HANDLERS, **(extra or {})},
        roll=write_statements,
        in_parser=in_parser,
    )


def emit_actions(unit: Translation, locals_: Locals, out: Writer) -> None:
    """Write one C function per action.

    If an action may execute ``exit``, its function returns 1 after an ``exit`` and 0 otherwise.
    """
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


def emit_block(unit: Translation, locals_: Locals, name: str, out: Writer) -> None:
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


MAX_STATES = 1000


def emit_parser(unit: Translation, locals_: Locals, parser: str, out: Writer) -> None:
    """Write ``run_PARSER``, which returns the parser error (0: none) and sets the payload's start."""
    states = unit.program.parsers[parser]
    reachable = _reachable(states)
    loops = _has_loop(states, reachable)
    names = Names()
    labels = {state: f"state_{names.unique(state)}" for state in reachable}
    targets = {target for state in reachable for target in _targets(states[state].transition)}
    with out.block(f"P4_FUNCTION uint32_t run_{parser}({PARAMETERS}, const uint8_t *restrict frame)"):
        out.line(
            "(void)s, (void)v;",
            "const uint8_t *at = frame, *end = frame + p->frame_length;",
            "uint32_t error = 0;",
        )
        if loops:
            out.line("uint32_t states = 0;")
        body = open_body(
            unit,
            out,
            locals_.of(parser),
            leave="goto stop;",
            extra={"Extract": _extract, "Advance": _advance, "Verify": _verify},
            in_parser=True,
        )
        for name in reachable:
            state = states[name]
            out.line()
            label = f"{labels[name]}:" if name in targets else ""
            out.line(f"{label}  /* state {name}, {comment(state.pos)} */".lstrip())
            if loops:
                body.fail_if(f"states++ >= {MAX_STATES}", "ParserTimeout")
            body.brought.clear()
            body.summed |= frame_sums(state.body)
            body.statements(state.body)
            _transition(body, state.transition, labels)
        out.line()
        out.line(
            "stop:",
            "p->payload = (uint32_t)(at - frame);",
            "return error;",
        )
    out.line()


def _reachable(states: Mapping[str, ir.ParserState]) -> list[str]:
    found: dict[str, None] = {}
    waiting = ["start"]
    while waiting:
        name = waiting.pop()
        if name in found or name not in states:
            continue
        found[name] = None
        waiting += reversed(_targets(states[name].transition))
    return list(found)


def _targets(transition: ir.Transition) -> list[str]:
    """Return the possible targets of a transition, up to the first case that always matches."""
    targets = []
    for patterns, target in transition.cases:
        targets.append(target)
        if all(pattern.kind == "any" for pattern in patterns):
            break
    return targets


def _has_loop(states: Mapping[str, ir.ParserState], reachable: Sequence[str]) -> bool:
    """Return True if some state is reachable from itself."""
    remaining = set(reachable)
    while True:
        ends = {
            name
            for name in remaining
            if not any(target in remaining for target in _targets(states[name].transition))
        }
        if not ends:
            return bool(remaining)
        remaining -= ends


def _transition(body: BodyWriter, transition: ir.Transition, labels: dict[str, str]) -> None:
    body.prepare(transition.subjects)
    subjects = []
    with body.out.block(""):
        for number, subject in enumerate(transition.subjects):
            width = ir.width_of(subject.type)
            text = body.expressions.text(subject)
            body.out.line(
                f"const {c_integer(class_bits(width))} key_{number} = {text};",
                f"(void)key_{number};",
            )
            subjects.append((f"key_{number}", subject.type))
        for patterns, target in transition.cases:
            tests = pattern_tests(patterns, subjects)
            jump = f"goto {labels.get(target, 'stop')};"
            if not tests:
                body.out.line(jump)
                return
            condition = unparenthesised(tests[0]) if len(tests) == 1 else " && ".join(tests)
            body.out.when(condition, jump)
        body.out.line(
            f"error = {body.unit.error('NoMatch')};  /* NoMatch */",
            "goto stop;",
        )


def pattern_tests(patterns: Sequence[ir.Pattern], values: Sequence[tuple[str, ir.Type]]) -> list[str]:
    """Return the C conditions under which `values` (C text and type) match; none if they always match."""
    tests = (_test(pattern, *value) for pattern, value in zip(patterns, values, strict=True))
    return [test for test in tests if test is not None]


def _test(pattern: ir.Pattern, text: str, type_: ir.Type) -> str | None:
    width = ir.width_of(type_)
    match pattern.kind:
        case "any":
            return None
        case "exact":
            return f"({text} == {literal(pattern.value, width)})"
        case "mask":
            mask = pattern.mask & ((1 << width) - 1)
            return f"(({text} & {literal(mask, width)}) == {literal(pattern.value & mask, width)})"
        case "range" if is_signed(type_):
            bits = class_bits(width)
            value = f"p4_signed{bits}({text}, {width})"
            low, high = (
                f"p4_signed{bits}({literal(n, width)}, {width})" for n in (pattern.value, pattern.mask)
            )
            return f"({low} <= {value} && {value} <= {high})"
        case "range":
            low, high = literal(pattern.value, width), literal(pattern.mask, width)
            return f"({low} <= {text} && {text} <= {high})"
        case _:
            raise ValueError(f"no such pattern: {pattern.kind}")


# --------------------------------------------------------------------------- statements of parsers


def _extract(body: BodyWriter, statement: ir.Extract) -> None:
    out, expressions = body.out, body.expressions
    body.check([statement.header] if statement.size is None else [statement.header, statement.size])
    if statement.size is not None:
        body.bring([statement.size])
    header = expressions.header(statement.header)
    home, layout = header.home, header.home.layout
    fixed = layout.fixed_bits // 8
    with out.block(""):
        bytes_text, extra = str(fixed), ""
        if layout.varbit is not None:
            assert isinstance(layout.varbit.type, ir.VarBits)
            out.line(
                f"uint64_t bits = {'0' if statement.size is None else expressions.text(statement.size)};"
            )
            body.fail_if("bits % 8", "ParserInvalidArgument")
            body.fail_if(f"(size_t)(end - at) < {fixed} + bits / 8", "PacketTooShort")
            body.fail_if(f"bits > {layout.varbit.type.max_width}", "HeaderTooShort")
            out.line("uint32_t bytes = (uint32_t)(bits / 8);")
            bytes_text, extra = f"{fixed} + bytes", ", bytes"
        elif fixed:
            body.fail_if(f"(size_t)(end - at) < {fixed}", "PacketTooShort")
        with out.block(f"if ({header.guard})" if header.guard is not None else ""):
            if home.where is not None and layout.varbit is None:
                # The header's fields are loaded on demand.
                out.line(f"{home.where} = P4_IN_FRAME + (uint32_t)(at - frame);")
                body.brought.discard(home.where)
            else:
                if any(is_told(statement.header, gress) for gress in ("ingress", "egress")):
                    out.line("if (at != frame)  /* else it is there already */")
                if home.raw is None:
                    out.line(f"p4_load_{layout.c_name}(&{home.text}, at{extra});")
                else:
                    out.line(f"take_{raw_name(home.raw)}(p, at);")
                if home.where is not None:
                    out.line(f"{home.where} = P4_STORED;")
            out.line(f"{home.valid} = 1;")
        out.line(f"at += {bytes_text};")
        if isinstance(statement.header, ir.Next):
            out.line(f"{expressions.stack(statement.header.base).next}++;")


def _advance(body: BodyWriter, statement: ir.Advance) -> None:
    body.prepare([statement.bits])
    with body.out.block(""):
        body.out.line(f"uint64_t bits = {body.expressions.text(statement.bits)};")
        body.fail_if("bits % 8", "ParserInvalidArgument")
        body.fail_if("(size_t)(end - at) < bits / 8", "PacketTooShort")
        body.out.line("at += bits / 8;")


def _verify(body: BodyWriter, statement: ir.Verify) -> None:
    body.prepare([statement.condition, statement.error])
    with body.out.block(f"if (!({body.expressions.text(statement.condition)}))"):
        body.out.line(
            f"error = {body.expressions.text(statement.error)};",
            "goto stop;",
        )


# --------------------------------------------------------------------------- deparser


def emit_deparser(unit: Translation, locals_: Locals, deparser: str, out: Writer) -> None:
    """Write the C function ``run_DEPARSER``: it stores the headers at ``to`` and returns the end."""
    body_of = unit.program.blocks[deparser]
    _check_room(unit, body_of)
    written = Writer()
    with written.block(f"P4_FUNCTION uint8_t *run_{deparser}({PARAMETERS}, uint8_t *to)"):
        written.line("(void)s, (void)p, (void)v;")
        body = open_body(unit, written, locals_.of(deparser), leave="return to;", extra={"Emit": _emit})
        body.statements(body_of)
        written.line("return to;")
    out.lines += body.loops.lines + written.lines
    out.line()


def _check_room(unit: Translation, deparser: Sequence[ir.Stmt]) -> None:
    """Raise Unsupported if a deparser could write more bytes of headers than the longest frame has."""
    total = 0
    for statement in all_statements(deparser):
        if not isinstance(statement, ir.Emit):
            continue
        type_ = statement.header.type
        element, count = (type_.element, type_.size) if isinstance(type_, ir.Stack) else (type_, 1)
        assert isinstance(element, ir.Header)
        layout = unit.headers[element]
        varbit = layout.varbit.type if layout.varbit is not None else None
        bits = layout.fixed_bits + (varbit.max_width if isinstance(varbit, ir.VarBits) else 0)
        total += count * bits // 8
        if total > MAX_FRAME:
            raise Unsupported(f"headers of more than {MAX_FRAME} bytes", statement.pos)


def _emit(body: BodyWriter, statement: ir.Emit) -> None:
    if isinstance(statement.header.type, ir.Header):
        header = body.expressions.header(statement.header)
        _emit_header(body, header.home, header.guard)
        return
    stack = body.expressions.stack(statement.header)
    with body.out.block(f"for (size_t i = 0; i < {stack.size}; i++)"):
        _emit_header(body, HeaderHome(stack.layout, f"{stack.text}[i]", f"{stack.valid}[i]", None), None)


def _emit_header(body: BodyWriter, home: HeaderHome, guard: str | None) -> None:
    layout = home.layout
    condition = home.valid if guard is None else f"{guard} && {home.valid}"
    size = str(layout.fixed_bits // 8)
    if layout.varbit is not None:
        size += f" + {home.text}.{layout.varbit.member}.bits / 8"
    with body.out.block(f"if ({condition})"):
        if home.raw is not None:
            body.out.line(f"give_{raw_name(home.raw)}(p, to);")
        elif home.where is None:
            body.out.line(f"p4_store_{layout.c_name}(to, &{home.text});")
        elif layout.varbit is None:
            body.out.line(f"emit_{where_name(home)}(p, to);")
        else:
            body.out.line(
                f"bring_{where_name(home)}(p);",
                f"p4_store_{layout.c_name}(to, &{home.text});",
            )
        body.out.line(f"to += {size};")
