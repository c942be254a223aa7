"""Check statements and lower them to the IR."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.verify import check_stored
from softswitch.compiler.ir.walk import path_of
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import (
    condition,
    evaluate,
    evaluate_as,
    known,
    type_at,
    writable,
)
from softswitch.compiler.lowering.convert import (
    Operand,
    clear,
    convert,
    expression,
    mismatch,
    saved,
    steady,
    store,
    undefine,
)
from softswitch.compiler.lowering.operators import binary
from softswitch.compiler.lowering.unit import Body, CodePlace, DeclaredTable
from softswitch.compiler.lowering.values import (
    ApplyOutcome,
    GroupValue,
    Local,
    Run,
    Scope,
    Value,
    Variable,
    parts_of,
    show,
    type_of,
    unknown,
)


def lower_statements(body: Body, statements: tuple[ast.Stmt, ...]) -> None:
    """Emit statements in the current scope of `body`; report errors. Raises Unsupported."""
    for statement in statements:
        try:
            _lower(body, statement)
        except Unsupported:
            raise
        except CompileError as error:
            body.unit.report(error)
            if isinstance(statement, ast.VarDecl | ast.ConstDecl):
                body.scope.break_name(statement.name, statement.pos)


def _lower(body: Body, statement: ast.Stmt) -> None:
    match statement:
        case ast.AssignStatement():
            _assign(body, statement)
        case ast.CallStatement(call):
            value = evaluate(body, call)
            if isinstance(value, Run) and path_of(value.expr) is None:
                saved(
                    body, value, "unused", statement.pos
                )  # its evaluation may fail: a lookahead in a short packet
        case ast.IfStatement():
            _if(body, statement)
        case ast.VarDecl():
            _variable(body, statement)
        case ast.BlockStatement(inner):
            with body.block() as out:
                lower_statements(body, inner)
            body.out.extend(out)
        case ast.ConstDecl():
            declare_constant(body, body.scope, statement)
        case ast.SwitchStatement():
            _switch(body, statement)
        case ast.ReturnStatement():
            _return(body, statement)
        case ast.Jump("exit"):
            _exit(body, statement)
        case ast.For() | ast.ForIn():
            lower_loop(body, statement)
        case ast.Jump(kind):
            if not body.loops:
                raise CompileError("break or continue outside a loop", statement.pos)
            leave = ir.Break if kind == "break" else ir.Continue
            body.out.append(leave(pos=statement.pos))
        case ast.Instantiation():
            raise CompileError(
                f"{statement.name!r} is instantiated among statements",
                statement.pos,
                "a declaration before the apply block of the control",
            )


# --------------------------------------------------------------------------- loops


def lower_loop(body: Body, statement: ast.For | ast.ForIn) -> None:
    """Emit a loop. Variables of its head exist for the whole loop; variables of its body, for one round."""
    with body.block() as out:
        repeats, body.repeats = body.repeats, True
        body.loops += 1
        if isinstance(statement, ast.For):
            _for(body, statement)
        else:
            _for_in(body, statement)
        body.loops -= 1
        body.repeats = repeats
    body.out.extend(out)


def _for(body: Body, loop: ast.For) -> None:
    lower_statements(body, loop.init)
    with body.block() as inside:
        _leave_unless(body, condition(body, loop.condition), loop.pos)
        _lower(body, loop.body)
    with body.block() as update:
        lower_statements(body, loop.update)
    body.out.append(ir.Loop(tuple(inside), tuple(update), pos=loop.pos))


def _leave_unless(body: Body, holds: ir.Expr, pos: ir.Position) -> None:
    body.out.append(ir.If(holds, (), (ir.Break(pos=pos),), pos=pos))


def _for_in(body: Body, loop: ast.ForIn) -> None:
    if isinstance(loop.collection, ast.RangeExpr):
        _for_range(body, loop, loop.collection)
        return
    collection = _collection(body, loop.collection)
    shape = t.base(type_of(collection))
    if not isinstance(collection, GroupValue) and not isinstance(shape, t.StackType | t.Tuple):
        raise CompileError(
            f"there is no loop over {show(collection)}", loop.collection.pos, "low .. high, or a list"
        )
    target = _loop_variable(body, loop)
    number = body.held(ir.Const(t.BIT32, 0, pos=loop.pos), "element", loop.pos)
    cases: list[tuple[tuple[ir.Const, ...], tuple[ir.Stmt, ...]]] = []
    for i, part in enumerate(parts_of(collection, loop.pos)):
        with body.block() as chosen:
            store(body, target, convert(part, target.type, loop.pos, "an element"), loop.pos)
        cases.append(((ir.Const(t.BIT32, i, pos=loop.pos),), tuple(chosen)))
    cases.append(((), (ir.Break(pos=loop.pos),)))
    with body.block() as inside:
        body.out.append(ir.Switch(number, tuple(cases), pos=loop.pos))
        _lower(body, loop.body)
    body.out.append(ir.Loop(tuple(inside), (_counted_up(number, t.BIT32, loop.pos),), pos=loop.pos))


def _collection(body: Body, expr: ast.Expr) -> Value:
    """Return the collection of a loop; elements of lists are evaluated once, before the first round."""
    match expr:
        case ast.CastExpr(ast.ListTypeRef(element), ast.ListExpr() as given, pos=pos):
            type_ = type_at(body, element)
            value = evaluate(body, given)
            assert isinstance(value, GroupValue)
            parts = (convert(part, type_, pos, f"element {n}") for n, part in enumerate(value.parts))
            value = GroupValue(t.ListType(type_), tuple(parts))
        case _:
            value = evaluate(body, expr)
    return saved(body, value, "elements", expr.pos) if isinstance(value, GroupValue) else value


def _counted_up(variable: ir.Expr, type_: ir.Bits, pos: ir.Position) -> ir.Stmt:
    return ir.Assign(variable, ir.Binary(type_, "+", variable, ir.Const(type_, 1, pos=pos), pos=pos), pos=pos)


def _loop_variable(body: Body, loop: ast.ForIn) -> Run:
    if loop.type is None:
        raise CompileError(
            f"the variable {loop.name!r} of the loop has no type",
            loop.pos,
            f"a variable of its own: for (bit<8> {loop.name} in …)",
        )
    type_ = type_at(body, loop.type)
    variable = Run(type_, body.temporary(type_, loop.name, loop.pos), writable=True)
    body.scope.declare(loop.name, Variable(variable, pos=loop.pos))
    return variable


def _for_range(body: Body, loop: ast.ForIn, values: ast.RangeExpr) -> None:
    """Emit a loop over ``low .. high``, both included; it ends before `high` is incremented."""
    target = _loop_variable(body, loop)
    low = evaluate_as(body, values.low, target.type, "the first value")
    high = saved(body, evaluate_as(body, values.high, target.type, "the last value"), "last", loop.pos)
    current = Run(target.type, body.temporary(target.type, "round", loop.pos), writable=True)
    store(body, current, low, loop.pos)
    last = expression(body, high, loop.pos)
    scalar = t.lowered(target.type)
    if not isinstance(scalar, ir.Bits):
        raise CompileError(f"there is no loop over {t.describe(target.type)}", loop.pos, "bit<W> or int<W>")
    with body.block() as inside:
        _leave_unless(body, ir.Binary(t.BOOL, "<=", current.expr, last, pos=loop.pos), loop.pos)
        store(body, target, current, loop.pos)
        _lower(body, loop.body)
    with body.block() as update:
        _leave_unless(body, ir.Binary(t.BOOL, "!=", current.expr, last, pos=loop.pos), loop.pos)
        body.out.append(_counted_up(current.expr, scalar, loop.pos))
    body.out.append(ir.Loop(tuple(inside), tuple(update), pos=loop.pos))


def _branch(body: Body, statement: ast.Stmt | None) -> tuple[ir.Stmt, ...]:
    with body.block() as out:
        if statement is not None:
            _lower(body, statement)
    return tuple(out)


# --------------------------------------------------------------------------- variables


def _assign(body: Body, statement: ast.AssignStatement) -> None:
    target = writable(body, statement.target)
    mark = len(body.out)
    pos = statement.value.pos
    if statement.op == "=":
        value = evaluate_as(body, statement.value, target.type, "the assigned value")
    else:
        right = evaluate(body, statement.value)
        left: Value = target
        if len(body.out) > mark:
            effects = body.take_since(mark)
            left = saved(body, target, "saved", statement.pos)
            mark = len(body.out)
            body.out.extend(effects)
        result = binary(
            statement.op[:-1], Operand(left, statement.target.pos), Operand(right, pos), statement.pos
        )
        value = convert(result, target.type, pos, "the assigned value")
    if len(body.out) > mark:
        effects = body.take_since(mark)
        target = steady(body, target, statement.pos)
        body.out.extend(effects)
    store(body, target, value, statement.pos)


def _variable(body: Body, decl: ast.VarDecl) -> None:
    type_ = type_at(body, decl.type)
    lowered = t.lowered(type_)
    if lowered is None:
        raise CompileError(
            f"a variable cannot have type {t.describe(type_)}", decl.pos, "a type that exists at run time"
        )
    check_stored(lowered, decl.pos)
    value = None
    if decl.value is not None:
        value = evaluate_as(body, decl.value, type_, f"the initial value of {decl.name!r}")
    variable = Run(type_, body.temporary(type_, decl.name, decl.pos), writable=True)
    body.scope.declare(decl.name, Variable(variable, pos=decl.pos))
    if value is not None:
        store(body, variable, value, decl.pos)
        return
    if body.repeats:
        clear(body, variable, decl.pos)
    undefine(body, variable, decl.pos)


def declare_constant(body: Body, scope: Scope, decl: ast.ConstDecl) -> None:
    """Declare a constant in `scope`."""
    type_ = type_at(body, decl.type)
    value = known(body, decl.value, type_, f"the value of constant {decl.name!r}")
    if isinstance(value, Run):
        value = Run(value.type, value.expr, why=f"{decl.name!r} is a constant")
    scope.declare(decl.name, Variable(value, pos=decl.pos))


# --------------------------------------------------------------------------- control flow


def _if(body: Body, statement: ast.IfStatement) -> None:
    choice = condition(body, statement.condition)
    if isinstance(choice, ir.Const):
        branches = (statement.otherwise, statement.then)
        taken, dead = branches[choice.value], branches[1 - choice.value]
        with body.unit.scratch():
            _branch(body, dead)
        body.out.extend(_branch(body, taken))
        return
    then, otherwise = _branch(body, statement.then), _branch(body, statement.otherwise)
    body.out.append(ir.If(choice, then, otherwise, pos=statement.pos))


def _return(body: Body, statement: ast.ReturnStatement) -> None:
    if body.place in (CodePlace.PARSER, CodePlace.CONSTANT):
        raise CompileError(f"return cannot be used in {body.place.value}", statement.pos, "a transition")
    if body.result is not None and not isinstance(body.result.type, t.Void):
        if statement.value is None:
            raise CompileError(
                "return without a value", statement.pos, f"a value of type {t.describe(body.result.type)}"
            )
        value = evaluate_as(body, statement.value, body.result.type, "the result")
        assert body.result.variable is not None
        store(body, Run(body.result.type, body.result.variable, writable=True), value, statement.pos)
    elif statement.value is not None:
        raise CompileError("return with a value where none is expected", statement.value.pos, "return;")
    body.usage.returns += 1
    body.out.append(ir.Return(pos=statement.pos))


def _exit(body: Body, statement: ast.Jump) -> None:
    if body.place not in (CodePlace.CONTROL, CodePlace.ACTION):
        raise CompileError(
            f"exit cannot be used in {body.place.value}", statement.pos, "a control or an action"
        )
    body.usage.exits = True
    body.out.extend(body.copy_outs)
    body.out.append(ir.Exit(pos=statement.pos))


# --------------------------------------------------------------------------- switch


def _switch(body: Body, statement: ast.SwitchStatement) -> None:
    _check_labels(statement)
    subject = statement.subject
    table = _table_of(body, subject)
    if table is not None:
        assert isinstance(subject, ast.MemberExpr)
        outcome = evaluate(body, subject.base)
        assert isinstance(outcome, ApplyOutcome)
        chosen = outcome.action
        if chosen is None:
            chosen = body.temporary(t.BIT32, "action_run", subject.pos)
            body.out[-1] = ir.Apply(outcome.apply.table, None, chosen, pos=outcome.apply.pos)
        labels = {id(case): _action_label(table, case.label) for case in statement.cases}
        body.out.append(ir.Switch(chosen, _cases(body, statement, labels), pos=statement.pos))
        return
    value = evaluate(body, subject)
    if not isinstance(value, Run) or not isinstance(t.lowered(value.type), ir.Bits | ir.Bool | ir.Enum):
        raise CompileError(
            f"switch cannot match {show(value)}", subject.pos, "bit<W>, int<W>, bool, an enum or error"
        )
    labels = {id(case): _constant_label(body, value, case.label) for case in statement.cases}
    body.out.append(
        ir.Switch(expression(body, value, subject.pos), _cases(body, statement, labels), pos=statement.pos)
    )


def _table_of(body: Body, subject: ast.Expr) -> DeclaredTable | None:
    """Return the table if the subject is ``table.apply().action_run``; else None."""
    match subject:
        case ast.MemberExpr(
            ast.CallExpr(ast.MemberExpr(ast.Name(name, absolute, pos=pos), "apply")), "action_run"
        ):
            symbol = body.scope.lookup(name, pos, absolute=absolute)
            if isinstance(symbol, Local) and isinstance(symbol.item, DeclaredTable):
                return symbol.item
    return None


def _check_labels(statement: ast.SwitchStatement) -> None:
    for case in statement.cases[:-1]:
        if ast.is_word(case.label, "default"):
            raise CompileError(
                "a label after default is never reached", case.label.pos, "default as the last label"
            )


def _action_label(table: DeclaredTable, label: ast.Expr) -> ir.Const | None:
    if ast.is_word(label, "default"):
        return None
    if not isinstance(label, ast.Name):
        raise CompileError("this label names no action", label.pos, "an action of the table")
    if label.name not in table.names:
        raise unknown(f"action of table {table.decl.name!r}", label.name, table.names, label.pos)
    return ir.Const(t.BIT32, table.names.index(label.name), pos=label.pos)


def _constant_label(body: Body, subject: Run, label: ast.Expr) -> ir.Const | None:
    if ast.is_word(label, "default"):
        return None
    value = known(body, label, subject.type, "the label")
    if isinstance(value, Run) and isinstance(value.expr, ir.Const):
        return value.expr
    raise mismatch(value, subject.type, label.pos, "the label")


def _cases(
    body: Body, statement: ast.SwitchStatement, labels: dict[int, ir.Const | None]
) -> tuple[tuple[tuple[ir.Const, ...], tuple[ir.Stmt, ...]], ...]:
    """Return the cases for the IR, as (labels, body).

    The labels of a case include the labels of all cases that fall through to it.
    """
    cases: list[tuple[tuple[ir.Const, ...], tuple[ir.Stmt, ...]]] = []
    seen: dict[int, ir.Position] = {}
    constants: list[ir.Const] = []
    default = False
    for case in statement.cases:
        constant = labels[id(case)]
        if constant is None:
            default = True
        elif constant.value in seen:
            raise CompileError(
                "duplicate label",
                case.label.pos,
                f"one case for each label; the first is at {seen[constant.value]}",
            )
        else:
            seen[constant.value] = case.label.pos
            constants.append(constant)
        if case.body is not None or case is statement.cases[-1]:
            cases.append((() if default else tuple(constants), _branch(body, case.body)))
            constants, default = [], False
    return tuple(cases)
