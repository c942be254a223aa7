"""Check that a program in IR is consistent, so that a compiler defect is found here, not in a back end.

Every name must exist, every node must have the type that follows from its operands, every table entry must
fit its key. The check runs after every lowering and takes time proportional to the program's size.

Correct code beyond the back ends' limits is reported with its position (`check_limits`). Headers must be
whole bytes, as on BMv2, and so must varbits and the fields in front of them. Values of more than 128 bits
can be stored, copied and compared, but arithmetic on them is not supported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.ir import fold
from softswitch.compiler.ir.walk import child_expressions, nested_bodies, nodes, statement_expressions

_BOOL = ir.Bool()
_ARITHMETIC = ("+", "-", "*", "/", "%", "&", "|", "^", "|+|", "|-|")


class InconsistentProgram(Exception):
    """The IR breaks one of its own rules: a defect of this compiler."""


def verify_program(program: ir.Program) -> None:
    """Check a whole program. Raises InconsistentProgram at the first violation."""
    _Verifier(program).run()


def _fail(message: str, pos: ir.Position) -> NoReturn:
    raise InconsistentProgram(f"{pos}: {message}")


class _Verifier:
    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._types: dict[str, ir.Type] = {
            **program.variables,
            "hdr": program.hdr,
            "meta": program.meta,
            "standard_metadata": program.standard_metadata,
        }

    def run(self) -> None:
        program = self._program
        for block in program.blocks.values():
            self._body(block)
        for action in program.actions.values():
            for param in action.params:
                if self._types.get(param.variable) != param.type:
                    _fail(f"parameter {param.name} of {action.name} has no variable", action.pos)
            self._body(action.body)
        for states in program.parsers.values():
            for state in states.values():
                self._state(state, states)
            if "start" not in states:
                _fail("a parser has no state start", ir.Position(program.name, 1, 1))
        for table in program.tables.values():
            self._table(table)
        objects: list[ir.Register | ir.Counter | ir.Meter] = [
            *program.registers.values(),
            *program.counters.values(),
            *program.meters.values(),
        ]
        for item in objects:
            if item.size <= 0:
                _fail(f"{item.name} has size {item.size}", item.pos)
        for number, paths in program.field_lists.items():
            for path in paths:
                self._path(number, path)

    def _path(self, number: int, path: tuple[str, ...]) -> None:
        type_: ir.Type | None = self._types.get(path[0])
        for name in path[1:]:
            type_ = dict(type_.fields).get(name) if isinstance(type_, ir.Struct | ir.Header) else None
        if type_ is None:
            _fail(f"field list {number} has no field {'.'.join(path)}", ir.Position(self._program.name, 1, 1))

    # ----------------------------------------------------------------------- statements

    def _body(self, statements: Sequence[ir.Stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, s: ir.Stmt) -> None:
        for expr in statement_expressions(s):
            self._expr(expr)
        for body in nested_bodies(s):
            self._body(body)
        match s:
            case ir.Assign():
                self._place(s.target)
                self._same(s.target.type, s.value.type, s.pos)
            case ir.Forget():
                self._place(s.target)
            case ir.If():
                self._same(s.condition.type, _BOOL, s.pos)
            case ir.Switch():
                for constant in (constant for constants, _ in s.cases for constant in constants):
                    self._expr(constant)
                    self._same(constant.type, s.subject.type, s.pos)
            case ir.Apply():
                if s.table not in self._program.tables:
                    _fail(f"there is no table {s.table}", s.pos)
                for variable, type_ in ((s.hit, _BOOL), (s.action, ir.Bits(32))):
                    if variable is not None:
                        self._same(variable.type, type_, s.pos)
            case ir.Call():
                if s.action not in self._program.actions:
                    _fail(f"there is no action {s.action}", s.pos)
            case ir.Skip() | ir.Shift():
                self._place(s.stack, ir.Stack)
            case ir.SetValidity():
                self._place(s.header, ir.Header)
            case ir.Extract():
                self._place(s.header, ir.Header)
                if s.size is not None:
                    self._same(s.size.type, ir.Bits(32), s.pos)
            case ir.Advance():
                self._same(s.bits.type, ir.Bits(32), s.pos)
            case ir.Verify():
                self._same(s.condition.type, _BOOL, s.pos)
                self._same(s.error.type, self._program.errors, s.pos)
            case ir.Emit():
                self._place(s.header, ir.Header | ir.Stack)
            case ir.Extern():
                self._extern(s)

    def _extern(self, s: ir.Extern) -> None:
        program = self._program
        known: dict[str, object] = {
            "register.read": program.registers,
            "register.write": program.registers,
            "counter.count": program.counters,
            "meter.execute_meter": program.meters,
            "digest": program.digests,
        }
        objects = known.get(s.function)
        if isinstance(objects, dict) and s.instance not in objects:
            _fail(f"there is no object {s.instance} for {s.function}", s.pos)
        if s.function.startswith("register."):
            target, index = s.args if s.function == "register.read" else (s.args[1], s.args[0])
            self._same(target[0].type, program.registers[s.instance].type, s.pos)
            self._is(index[0], ir.Bits, s.pos)

    # ----------------------------------------------------------------------- parser and tables

    def _state(self, state: ir.ParserState, states: Mapping[str, ir.ParserState]) -> None:
        self._body(state.body)
        transition = state.transition
        for subject in transition.subjects:
            self._expr(subject)
        for patterns, target in transition.cases:
            if target not in states and target not in ("accept", "reject"):
                _fail(f"there is no state {target}", transition.pos)
            if len(patterns) != len(transition.subjects):
                _fail(
                    f"{len(patterns)} patterns do not fit {len(transition.subjects)} subjects", transition.pos
                )
            for pattern, subject in zip(patterns, transition.subjects, strict=True):
                self._pattern(pattern, subject.type, transition.pos)

    def _pattern(self, pattern: ir.Pattern, type_: ir.Type, pos: ir.Position) -> None:
        low, high = _limits(type_, pos)
        full = high - low
        match pattern.kind:
            case "any":
                pass
            case "exact" if low <= pattern.value <= high:
                pass
            case "mask" if 0 <= pattern.value <= full and 0 <= pattern.mask <= full:
                pass
            case "range" if low <= pattern.value <= pattern.mask <= high:
                pass
            case _:
                _fail(f"{pattern} does not fit type {type_}", pos)

    def _table(self, table: ir.Table) -> None:
        for expr in (*(key.expr for key in table.keys), *(cell.place for cell in table.cells)):
            self._expr(expr)
        listed = {ref.action for ref in table.actions}
        for name in listed:
            if name not in self._program.actions:
                _fail(f"table {table.name} has no action {name}", table.pos)
        if len(listed) != len(table.actions):
            _fail(f"table {table.name} lists an action twice", table.pos)
        self._invocation(table, table.default)
        for entry in table.entries:
            self._invocation(table, entry.invocation)
            if len(entry.patterns) != len(table.keys):
                _fail(f"an entry of {len(entry.patterns)} patterns in {table.name}", table.pos)
            for pattern, key in zip(entry.patterns, table.keys, strict=True):
                self._pattern(pattern, key.expr.type, table.pos)
        if table.size <= 0:
            _fail(f"table {table.name} has size {table.size}", table.pos)
        if table.direct_counter is not None:
            counter = self._program.counters.get(table.direct_counter)
            if counter is None or counter.table != table.name:
                _fail(f"there is no counter {table.direct_counter} of table {table.name}", table.pos)
        if table.direct_meter is not None:
            meter = self._program.meters.get(table.direct_meter)
            if meter is None or meter.table != table.name or meter.colour not in self._types:
                _fail(f"there is no meter {table.direct_meter} of table {table.name}", table.pos)

    def _invocation(self, table: ir.Table, invocation: ir.Invocation) -> None:
        if all(ref.action != invocation.action for ref in table.actions):
            _fail(f"{invocation.action} is no action of {table.name}", table.pos)
        params = self._program.actions[invocation.action].params
        if len(params) != len(invocation.args):
            _fail(f"{len(invocation.args)} arguments for {invocation.action}", table.pos)
        for param, value in zip(params, invocation.args, strict=True):
            low, high = _limits(param.type, table.pos)
            if not low <= value <= high:
                _fail(f"argument {value} does not fit {param.name} of {invocation.action}", table.pos)

    # ----------------------------------------------------------------------- expressions

    def _same(self, a: ir.Type, b: ir.Type, pos: ir.Position) -> None:
        if a is not b and a != b:
            _fail(f"{_name(a)} where {_name(b)} is expected", pos)

    def _is(self, expr: ir.Expr, kind: Any, pos: ir.Position) -> None:
        if not isinstance(expr.type, kind):
            _fail(f"a value of type {_name(expr.type)} is in the wrong place", pos)

    def _place(self, expr: ir.Expr, kind: Any = ir.Type) -> None:
        """Check that an expression is an l-value whose type is an instance of `kind`."""
        if not isinstance(expr, ir.Var | ir.Member | ir.Index | ir.Next | ir.Last | ir.Slice):
            _fail(f"{type(expr).__name__} cannot be assigned to", expr.pos)
        self._is(expr, kind, expr.pos)

    def _expr(self, e: ir.Expr) -> None:
        for operand in child_expressions(e):
            self._expr(operand)
        match e:
            case ir.Const():
                low, high = _limits(e.type, e.pos)
                if type(e.value) is not int or not low <= e.value <= high:
                    _fail(f"constant {e.value!r} does not fit type {_name(e.type)}", e.pos)
            case ir.Var():
                if e.name not in self._types:
                    _fail(f"there is no variable {e.name}", e.pos)
                self._same(e.type, self._types[e.name], e.pos)
            case ir.Member():
                self._place(e.base)
                base = e.base.type
                if not isinstance(base, ir.Struct | ir.Header):
                    _fail(f"field {e.field} cannot be part of type {_name(base)}", e.pos)
                if not any(name == e.field and type_ == e.type for name, type_ in base.fields):
                    _fail(f"{_name(base)} has no field {e.field} of {_name(e.type)}", e.pos)
            case ir.Index() | ir.Next() | ir.Last():
                self._place(e.base)
                if not isinstance(e.base.type, ir.Stack):
                    _fail(f"there are no elements in type {_name(e.base.type)}", e.pos)
                self._same(e.type, e.base.type.element, e.pos)
                if isinstance(e, ir.Index):
                    self._is(e.index, ir.Bits, e.pos)
            case ir.LastIndex():
                self._place(e.base, ir.Stack)
            case ir.Slice():
                if not isinstance(e.base.type, ir.Bits) or not e.base.type.width > e.high >= e.low >= 0:
                    _fail(f"slice [{e.high}:{e.low}] does not fit type {_name(e.base.type)}", e.pos)
                self._same(e.type, ir.Bits(e.high - e.low + 1), e.pos)
            case ir.Unary():
                self._same(e.type, e.operand.type, e.pos)
                if (e.op == "!") != (e.type == _BOOL) or e.op not in ("!", "-", "~"):
                    _fail(f"{e.op} does not apply to {_name(e.type)}", e.pos)
            case ir.Binary():
                self._binary(e)
            case ir.Cast():
                if not (isinstance(e.type, ir.Bits) and isinstance(e.operand.type, ir.Bits)) and {
                    e.type,
                    e.operand.type,
                } != {ir.Bits(1), _BOOL}:
                    _fail(f"there is no cast of {_name(e.operand.type)} to {_name(e.type)}", e.pos)
            case ir.Mux():
                for part, type_ in ((e.condition, _BOOL), (e.then, e.type), (e.otherwise, e.type)):
                    self._same(part.type, type_, e.pos)
            case ir.IsValid():
                self._place(e.header, ir.Header)
            case ir.Lookahead() | ir.PacketLength():
                self._is(e, ir.Bits, e.pos)

    def _binary(self, e: ir.Binary) -> None:
        left, right = e.left.type, e.right.type
        if e.op in ("&&", "||"):
            self._same(left, _BOOL, e.pos)
            self._same(right, _BOOL, e.pos)
            self._same(e.type, _BOOL, e.pos)
        elif e.op in ("==", "!="):
            self._same(left, right, e.pos)
            self._same(e.type, _BOOL, e.pos)
        elif e.op in ("<", "<=", ">", ">="):
            self._is(e.left, ir.Bits, e.pos)
            self._same(left, right, e.pos)
            self._same(e.type, _BOOL, e.pos)
        elif not isinstance(left, ir.Bits) or not isinstance(right, ir.Bits):
            _fail(f"{e.op} does not apply to {_name(left)} and {_name(right)}", e.pos)
        elif e.op == "++":
            self._same(e.type, ir.Bits(left.width + right.width, left.signed), e.pos)
        elif e.op in ("<<", ">>"):
            self._same(e.type, left, e.pos)
        elif e.op in _ARITHMETIC:
            self._same(left, right, e.pos)
            self._same(e.type, left, e.pos)
        else:
            _fail(f"there is no operator {e.op}", e.pos)


def _limits(type_: ir.Type, pos: ir.Position) -> tuple[int, int]:
    match type_:
        case ir.Bits():
            return fold.limits(type_)
        case ir.Bool():
            return 0, 1
        case ir.Enum(_, members):
            return 0, len(members) - 1
        case _:
            _fail(f"{_name(type_)} is not a scalar type", pos)


def _name(type_: ir.Type) -> str:
    match type_:
        case ir.Header(name) | ir.Struct(name) | ir.Enum(name):
            return name
        case _:
            return str(type_)


MAX_COMPUTED = 128
"""Maximum width in bits of the operands and results of arithmetic."""


def check_limits(program: ir.Program) -> None:
    """Raise Unsupported for the first expression beyond the limits of the back ends."""
    for node in nodes(program):
        if isinstance(node, ir.Unary | ir.Binary | ir.Cast | ir.Mux | ir.Slice | ir.Lookahead):
            _check_width(node)


def check_stored(type_: ir.Type, pos: ir.Position) -> None:
    """Raise Unsupported, at `pos`, if `type_` contains a header that the back ends do not support."""
    match type_:
        case ir.Header():
            _check_header(type_, pos)
        case ir.Stack(element):
            _check_header(element, pos)
        case ir.Struct(_, members):
            for _, member in members:
                check_stored(member, pos)


def _check_header(header: ir.Header, pos: ir.Position) -> None:
    bits = 0
    for name, type_ in header.fields:
        wide = _bits(type_) > MAX_COMPUTED
        if isinstance(type_, ir.VarBits) and (bits % 8 or type_.max_width % 8):
            raise Unsupported(f"varbit {name} of header {header.name} is no whole bytes", pos, "whole bytes")
        if wide and (bits % 8 or _bits(type_) % 8):
            raise Unsupported(
                f"wide field {name} of header {header.name} is no whole bytes", pos, "whole bytes"
            )
        bits += _bits(type_)
    if bits % 8:
        raise Unsupported(f"header {header.name} has {bits} bits: no multiple of 8", pos, "whole bytes")


def _bits(type_: ir.Type) -> int:
    match type_:
        case ir.Bits(width):
            return width
        case ir.Bool():
            return 1
        case _:
            return 0


def _check_width(expr: ir.Expr) -> None:
    parts = child_expressions(expr)
    if isinstance(expr, ir.Binary) and expr.op in ("==", "!="):
        parts = tuple(part for part in parts if not isinstance(part, ir.Var | ir.Member | ir.Const))
    widest = max((_bits(part.type) for part in (expr, *parts)), default=0)
    if widest > MAX_COMPUTED:
        raise Unsupported(f"a computation with {widest} bits", expr.pos, f"at most {MAX_COMPUTED} bits")


def is_wide(type_: ir.Type) -> bool:
    """Return True if a scalar is too wide for arithmetic."""
    return isinstance(type_, ir.Bits) and type_.width > MAX_COMPUTED


def too_wide(what: str, width: int, pos: ir.Position) -> Unsupported:
    """Return the error for `what`, whose `width` is too large for arithmetic."""
    return Unsupported(
        f"{what} of {width} bits: values wider than {MAX_COMPUTED} bits can only be extracted, copied, "
        "compared and emitted",
        pos,
    )
