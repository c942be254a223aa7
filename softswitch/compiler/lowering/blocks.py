"""Lower parsers and controls.

Parsers become states and transitions; the states of a sub-parser become states of the parser that applies it.

A state that applies a sub-parser is cut in two: the first half goes to the sub-parser's start state, and the
sub-parser's ``accept`` is the second half.

The body of a control is lowered where the control is applied.

The first application of an instance determines what its parameters stand for. Further applications run the
same statements again: parameters whose arguments differ between applications are therefore variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.walk import path_of
from softswitch.compiler.lowering import passing
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import evaluate_all
from softswitch.compiler.lowering.convert import expression
from softswitch.compiler.lowering.entries import ANY, declare_value_set, look_up, pattern
from softswitch.compiler.lowering.instances import declare_arguments, declare_instance, make_block
from softswitch.compiler.lowering.passing import bind, named, pass_arguments
from softswitch.compiler.lowering.statements import declare_constant
from softswitch.compiler.lowering.subroutines import formals_of, inline
from softswitch.compiler.lowering.tables import lowered_table
from softswitch.compiler.lowering.unit import (
    Body,
    CodePlace,
    DeclaredAction,
    DeclaredTable,
    Instance,
    ValueSet,
    control_name,
    spelling,
)
from softswitch.compiler.lowering.values import (
    Block,
    BlockDef,
    Formal,
    GroupValue,
    Local,
    PassedValues,
    Run,
    Scope,
    Value,
    show,
    unknown,
)

FINAL = ("accept", "reject")


@dataclass(frozen=True, slots=True)
class Application:
    """An application of a parser or control: the block, its scope, its name, and its arguments."""

    block: Block
    scope: Scope
    name: str
    formals: Sequence[Formal]
    passed: PassedValues

    def body(self, caller: Body, place: CodePlace, copy_outs: tuple[ir.Assign, ...] = ()) -> Body:
        """Return a `Body` for lowering the block, with constructor arguments and parameters declared."""
        body = caller.inside(scope=Scope(self.scope), place=place, prefix=self.name, copy_outs=copy_outs)
        declare_arguments(body.scope, self.block, self.name)
        self.passed.declare(body.scope, self.formals)
        body.scope = Scope(body.scope)
        return body


@dataclass(frozen=True, slots=True)
class ParserEntry:
    """How to enter a lowered parser: run the statements of `prologue`, then go to `state`."""

    prologue: tuple[ir.Stmt, ...]
    state: str


def lower_main_parser(caller: Body, applied: Application) -> None:
    """Add the states of the pipeline's parser to the program; it starts in ``start``."""
    states = caller.unit.states
    entry = _lower(caller, applied, prefix="", accept="accept")
    _refuse_idle_loop(states)
    if not entry.prologue:
        return
    first = states["start"]
    if not any(target == "start" for state in states.values() for _, target in state.transition.cases):
        states["start"] = ir.ParserState(
            "start", entry.prologue + first.body, first.transition, pos=first.pos
        )
        return
    # A transition leads back to start, so statements that must run once need a state before it.
    renamed = "start#1"
    for state in list(states.values()):
        own = renamed if state.name == "start" else state.name
        states[own] = replace(retargeted(state, "start", renamed), name=own)
    states["start"] = ir.ParserState("start", entry.prologue, _goto(renamed, first.pos), pos=first.pos)


def retargeted(state: ir.ParserState, old: str, new: str) -> ir.ParserState:
    """Return a state whose transitions lead to the state `new` instead of `old`."""
    cases = tuple((key, new if target == old else target) for key, target in state.transition.cases)
    return replace(state, transition=replace(state.transition, cases=cases))


def _refuse_idle_loop(states: Mapping[str, ir.ParserState]) -> None:
    """Raise CompileError for a cycle of states that no packet leaves.

    Each state of such a cycle has one unconditional transition, and no extract, advance or verify.
    """
    for start in states:
        seen: list[str] = []
        name = start
        while name in states and name not in seen and _only_passes_on(states[name]):
            seen.append(name)
            name = states[name].transition.cases[0][1]
        if seen and name == seen[0]:
            circle = " → ".join((*(repr(state) for state in seen), repr(name)))
            raise CompileError(
                f"the parser never leaves {circle}", states[name].pos, "a transition out of these states"
            )


def _only_passes_on(state: ir.ParserState) -> bool:
    takes = any(isinstance(statement, ir.Extract | ir.Advance | ir.Verify) for statement in state.body)
    return not takes and len(state.transition.cases) == 1 and not state.transition.subjects


def check_parser(caller: Body, applied: Application) -> None:
    """Lower a parser that no code applies, to check it; its states get unique names."""
    _lower(caller, applied, prefix=f"{applied.name}.", accept="accept")


def _goto(target: str, pos: ir.Position) -> ir.Transition:
    return ir.Transition((), (((), target),), pos=pos)


def _lower(caller: Body, applied: Application, *, prefix: str, accept: str) -> ParserEntry:
    decl, name = applied.block.decl, applied.name
    assert isinstance(decl, ast.ParserDecl)
    body = applied.body(caller, CodePlace.PARSER)
    body.repeats = prefix != ""
    for local in decl.locals:
        if isinstance(local, ast.ValueSetDecl):
            declare_value_set(body, local, name)
        else:
            _declare_local(body, local, (), name)
    prologue = body.take_since(0)
    body.repeats = True
    states = _States(body, decl, prefix, accept)
    for state in decl.states:
        with body.unit.reporting():
            states.lower(state)
    return ParserEntry(prologue, states.names["start"])


class _States:
    """The states of one parser, each with a name that is unique in the program."""

    def __init__(self, body: Body, decl: ast.ParserDecl, prefix: str, accept: str) -> None:
        self._body = body
        self._prefix = prefix
        self.names = {"accept": accept, "reject": "reject"}
        for state in decl.states:
            if state.name in FINAL:
                raise CompileError(f"state {state.name!r} is built in", state.pos, "another name")
            if state.name in self.names:
                raise CompileError(
                    f"state {state.name!r} is declared twice", state.pos, "a name of its own for each state"
                )
            self.names[state.name] = self._unique(f"{prefix}{state.name}")
        if "start" not in self.names:
            raise CompileError(f"parser {decl.name!r} has no state 'start'", decl.pos, "state start")

    def _unique(self, name: str) -> str:
        number, unique = 1, name
        while unique in self._body.unit.states:
            number += 1
            unique = f"{name}#{number}"
        # A placeholder: it reserves the name, and the state's place in source order.
        pos = ir.Position("", 0, 0)
        self._body.unit.states[unique] = ir.ParserState(unique, (), _goto("reject", pos), pos=pos)
        return unique

    def lower(self, state: ast.StateDecl) -> None:
        """Add a state to the program."""
        body, name = self._body, self.names[state.name]
        with body.block() as out:
            for statement in state.body:
                applied = self._application(statement)
                if applied is None:
                    body.unit.statements(body, (statement,))
                    continue
                instance, call = applied
                resumed = self._unique(name.partition("#")[0])
                copy_outs, entry = self._enter(instance, call, resumed)
                out.extend(entry.prologue)
                self._finish(name, out, _goto(entry.state, call.pos), state.pos)
                out.extend(copy_outs)
                name = resumed
            transition = self._transition(state)
            self._finish(name, out, transition, state.pos)

    def _finish(self, name: str, out: list[ir.Stmt], transition: ir.Transition, pos: ir.Position) -> None:
        self._body.unit.states[name] = ir.ParserState(name, tuple(out), transition, pos=pos)
        out.clear()

    # ----------------------------------------------------------------------- sub-parsers

    def _application(self, statement: ast.Stmt) -> tuple[Instance, ast.CallExpr] | None:
        """Return the parser that a statement applies, and the call; None for other statements."""
        match statement:
            case ast.CallStatement(ast.CallExpr(ast.MemberExpr(base, "apply")) as call):
                pass
            case _:
                return None
        match base:
            case ast.Name(name, absolute, pos=pos) | ast.TypeExpr(ast.NamedType(name, absolute, _, pos=pos)):
                symbol = self._body.scope.lookup(name, pos, absolute=absolute)
            case _:
                return None
        if isinstance(symbol, BlockDef) and isinstance(symbol.decl, ast.ParserDecl):
            block = make_block(self._body, symbol, (), call.pos)
            name = control_name(self._body.prefix, symbol.decl.name, ())
            return Instance(block, name, Scope(symbol.scope)), call
        if isinstance(symbol, Local) and isinstance(symbol.item, Instance):
            if isinstance(symbol.item.block.decl, ast.ParserDecl):
                return symbol.item, call
            raise CompileError("a control cannot be applied in a parser", call.pos, "a parser")
        return None

    def _enter(
        self, instance: Instance, call: ast.CallExpr, resumed: str
    ) -> tuple[tuple[ir.Assign, ...], ParserEntry]:
        body, block = self._body, instance.block
        decl = block.decl
        formals = formals_of(body.unit, decl.params, instance.scope)
        args = bind(f"parser {decl.name}", formals, call.args, call.pos)
        passed = pass_arguments(body, formals, args, prefix=instance.name, block=True)
        prefix = f"{self._prefix}{instance.name.rpartition('.')[2]}."
        with body.unit.entered(decl, f"parser {decl.name!r}", call.pos):
            applied = Application(block, instance.scope, instance.name, formals, passed)
            entry = _lower(body, applied, prefix=prefix, accept=resumed)
        return passed.copy_outs, entry

    # ----------------------------------------------------------------------- transitions

    def _target(self, name: str, pos: ir.Position) -> str:
        if name not in self.names:
            raise unknown("state", name, self.names, pos)
        return self.names[name]

    def _transition(self, state: ast.StateDecl) -> ir.Transition:
        match state.transition:
            case None:
                return _goto("reject", state.pos)
            case ast.Goto(target, pos=pos):
                return _goto(self._target(target, pos), pos)
            case ast.Select() as select:
                return self._select(select)

    def _select(self, select: ast.Select) -> ir.Transition:
        subjects: list[Value] = []
        for value in evaluate_all(self._body, select.subjects):
            subjects.extend(value.parts if isinstance(value, GroupValue) else (value,))
        types: list[t.Type] = []
        exprs: list[ir.Expr] = []
        for value in subjects:
            if not isinstance(value, Run) or not isinstance(
                t.lowered(value.type), ir.Bits | ir.Bool | ir.Enum
            ):
                raise CompileError(
                    f"select cannot match {show(value)}", select.pos, "bit<W>, int<W>, bool or an enum"
                )
            types.append(value.type)
            exprs.append(expression(self._body, value, select.pos))
        sets = {id(case): found for case in select.cases if (found := self._value_set(case)) is not None}
        if sets:
            exprs = [self._kept(expr) for expr in exprs]
        hits = {key: look_up(self._body, found, exprs, select.pos) for key, found in sets.items()}
        cases = []
        for case in select.cases:
            patterns = (ANY,) * len(types) if id(case) in sets else self._patterns(case, types)
            members = tuple(ir.Pattern("exact", 1) if key == id(case) else ANY for key in hits)
            cases.append(((*patterns, *members), self._target(case.target, case.pos)))
        return ir.Transition((*exprs, *hits.values()), tuple(cases), pos=select.pos)

    def _kept(self, expr: ir.Expr) -> ir.Expr:
        """Return the subject of a select as an expression that can be evaluated repeatedly.

        A subject that is neither a constant nor an l-value is stored in a new variable.
        """
        if path_of(expr) is not None or isinstance(expr, ir.Const):
            return expr
        return self._body.held(expr, "subject", expr.pos)

    def _value_set(self, case: ast.SelectCase) -> ValueSet | None:
        """Return the value set that a case names; None if it names none."""
        key = case.keys[0] if len(case.keys) == 1 else None
        symbol = self._body.scope.find(key.name) if isinstance(key, ast.Name) else None
        return symbol.item if isinstance(symbol, Local) and isinstance(symbol.item, ValueSet) else None

    def _patterns(self, case: ast.SelectCase, types: list[t.Type]) -> tuple[ir.Pattern, ...]:
        if len(case.keys) == 1 and ast.is_word(case.keys[0], "_", "default"):
            return (ANY,) * len(types)
        keys: tuple[ast.Expr, ...] = case.keys
        if len(keys) == 1 and isinstance(keys[0], ast.ListExpr):
            keys = keys[0].elements
        if len(keys) != len(types):
            raise CompileError(
                f"a case of select has {len(keys)} values", case.pos, f"{len(types)}, one for each subject"
            )
        return tuple(pattern(self._body, key, type_) for key, type_ in zip(keys, types, strict=True))


def apply_type(body: Body, symbol: BlockDef, expr: ast.CallExpr) -> None:
    """Emit ``Control.apply(…)``, the application of a new instance with the type's name."""
    block = make_block(body, symbol, (), expr.pos)
    # Like p4c, ignore a @name of the type here: it applies to declared instances only.
    name = control_name(body.control, symbol.decl.name, ())
    apply_instance(body, Instance(block, name, Scope(symbol.scope)), expr)


def apply_instance(body: Body, instance: Instance, expr: ast.CallExpr) -> None:
    """Emit the application of a control. Raises CompileError."""
    decl = instance.block.decl
    if isinstance(decl, ast.ParserDecl):
        if body.place is CodePlace.PARSER:
            raise Unsupported(
                "a parser applied inside another statement", expr.pos, "a statement directly in a state"
            )
        raise CompileError(f"a parser cannot be applied in {body.place.value}", expr.pos, "a parser state")
    if body.place is not CodePlace.CONTROL:
        raise CompileError(
            f"a control cannot be applied in {body.place.value}", expr.pos, "the apply block of a control"
        )
    formals = formals_of(body.unit, decl.params, instance.scope)
    args = bind(f"control {decl.name}", formals, expr.args, expr.pos)
    for formal in formals:
        lowered = t.lowered(formal.type)
        if formal.name in instance.copied and formal.name not in instance.variables:
            if lowered is None:
                raise Unsupported(
                    f"parameter {formal.name!r} differs between applications of {instance.name!r}",
                    expr.pos,
                    "the same argument in all applications",
                )
            name = body.unit.variable(f"{instance.name}.{formal.name}", lowered)
            instance.variables[formal.name] = ir.Var(lowered, name, pos=formal.pos)
    passed = pass_arguments(
        body, formals, args, prefix=instance.name, variables=instance.variables, block=True
    )
    if instance.passed is None:
        with body.unit.entered(decl, f"control {decl.name!r}", expr.pos):
            applied = Application(instance.block, instance.scope, instance.name, formals, passed)
            inner = lower_control(body, applied, repeats=instance.sites > 1)
        body.unit.on_forget(lambda: setattr(instance, "passed", None))
        instance.passed = passed
        instance.variables.update(passed.variables)
        instance.body = inner.finished(expr.pos)
        instance.exits = inner.usage.exits
    else:
        _check_repetition(body, instance, passed, expr)
    body.usage.exits |= instance.exits
    body.out.extend(instance.body)
    body.out.extend(passed.copy_outs)


def _check_repetition(body: Body, instance: Instance, passed: PassedValues, expr: ast.CallExpr) -> None:
    assert instance.passed is not None
    for name, value in passed.values.items():
        if spelling(value) != spelling(instance.passed.values[name]):
            raise Unsupported(
                f"parameter {name!r} differs between applications of {instance.name!r}",
                expr.pos,
                "the same argument in all applications",
            )
    if instance.exits and (passed.copy_outs or body.copy_outs):
        raise Unsupported(
            f"{instance.name!r} exits and is applied more than once with copied parameters", expr.pos
        )


def lower_control(caller: Body, applied: Application, *, repeats: bool) -> Body:
    """Lower the body of a control, with its parameters bound; return the `Body` with its statements.

    Set `repeats` if a packet may run the statements more than once: then they reset local variables.
    """
    decl, name = applied.block.decl, applied.name
    assert isinstance(decl, ast.ControlDecl)
    body = applied.body(caller, CodePlace.CONTROL, applied.passed.copy_outs)
    body.control = name
    body.repeats = caller.repeats or repeats
    items: list[DeclaredAction | DeclaredTable] = []
    for local in decl.locals:
        with body.unit.reporting():
            item = _declare_local(body, local, decl.body, name)
            items += [] if item is None else [item]
            continue
        body.scope.break_name(local.name, local.pos)
    with body.block() as out:
        body.unit.statements(body, decl.body.body)
    body.out.extend(out)
    check_unused(body, items)
    return body


def _declare_local(
    body: Body,
    local: ast.ConstDecl | ast.VarDecl | ast.Instantiation | ast.ActionDecl | ast.TableDecl,
    users: object,
    prefix: str,
) -> DeclaredAction | DeclaredTable | None:
    """Declare a local name; `users` is the code that may apply a declared instance."""
    match local:
        case ast.ConstDecl():
            declare_constant(body, body.scope, local)
        case ast.VarDecl():
            body.unit.statements(body, (local,))
        case ast.Instantiation():
            declare_instance(body, local, prefix, users)
        case ast.ActionDecl():
            passing.check_action(body.unit, body.scope, local)
            action = DeclaredAction(
                local, control_name(prefix, local.name, local.annotations), Scope(body.scope), body
            )
            body.scope.declare(local.name, Local(action, pos=local.pos))
            return action
        case ast.TableDecl():
            table = DeclaredTable(
                local, control_name(prefix, local.name, local.annotations), Scope(body.scope), body
            )
            body.scope.declare(local.name, Local(table, pos=local.pos))
            return table
    return None


def check_unused(body: Body, items: Sequence[DeclaredAction | DeclaredTable]) -> None:
    """Lower the declarations that the program never uses, to find errors, and discard the result."""
    for item in items:
        if not item.used:
            with body.unit.scratch(), body.unit.reporting(), suppress(Unsupported):
                if isinstance(item, DeclaredTable):
                    lowered_table(item, item.decl.pos)
                else:
                    check_action(body, item)


def check_action(body: Body, action: DeclaredAction) -> None:
    """Lower the body of an action that is never called, to check it, with variables for its parameters."""
    formals = formals_of(body.unit, action.decl.params, action.scope)
    values: dict[str, Value] = {}
    for formal in formals:
        variable = body.temporary(formal.type, formal.name, formal.pos)
        values[formal.name] = named(formal, Run(formal.type, variable, writable=True))
    inline(replace(body, out=[]), action, formals, PassedValues(values, ()), action.decl.pos)
