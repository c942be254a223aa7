"""Lower table entries in the source: patterns, actions with their arguments, priorities.

Also lowers the keysets of ``select``, and the value sets that a ``select`` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir import fold
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import ir_annotations, known, type_at, whole_number
from softswitch.compiler.lowering.passing import bind
from softswitch.compiler.lowering.subroutines import bound_action, formals_of, shared_action
from softswitch.compiler.lowering.unit import (
    Body,
    DeclaredAction,
    ValueSet,
    control_name,
    spelling,
)
from softswitch.compiler.lowering.values import Formal, Local, Run, show, unknown

ANY = ir.Pattern("any")


def pattern(body: Body, expr: ast.Expr, type_: t.Type) -> ir.Pattern:
    """Return the pattern of one component of a keyset; `type_` is the type to match. Raises CompileError."""
    match expr:
        case ast.Word("_" | "default"):
            return ANY
        case ast.Mask(value_expr, mask_expr):
            bits = _bits(type_, expr.pos)
            mask = _constant(body, mask_expr, bits) & _all_ones(bits)
            value = _constant(body, value_expr, bits) & mask
            if mask == 0:
                return ANY
            if mask == _all_ones(bits):
                return ir.Pattern("exact", fold.wrap(bits, value))
            return ir.Pattern("mask", value, mask)
        case ast.RangeExpr(low_expr, high_expr):
            bits = _bits(type_, expr.pos)
            low, high = _constant(body, low_expr, bits), _constant(body, high_expr, bits)
            if low > high:
                raise CompileError(f"the range {low} .. {high} is empty", expr.pos, "the smaller value first")
            return ir.Pattern("range", low, high)
        case _:
            return ir.Pattern("exact", _constant(body, expr, type_))


def _bits(type_: t.Type, pos: ir.Position) -> ir.Bits:
    bits = t.lowered(type_)
    if isinstance(bits, ir.Bits):
        return bits
    raise CompileError(
        f"a mask or range cannot match {t.describe(type_)}", pos, "a value of bit<W> or int<W>"
    )


def _constant(body: Body, expr: ast.Expr, type_: t.Type) -> int:
    if isinstance(expr, ast.CallExpr) and isinstance(expr.callee, ast.Name):
        raise CompileError("a keyset cannot contain a call", expr.pos, "a compile-time constant")
    value = known(body, expr, type_, "the keyset")
    if isinstance(value, Run) and isinstance(value.expr, ir.Const):
        return value.expr.value
    raise Unsupported(f"a keyset of {show(value)}", expr.pos, "a scalar")


def _all_ones(type_: ir.Bits) -> int:
    return (1 << type_.width) - 1


def entry_pattern(body: Body, expr: ast.Expr, key: ir.Key, type_: t.Type) -> ir.Pattern:
    """Return the pattern of one component of a table entry, in the form that the key's match kind needs.

    Raises CompileError for a pattern that the match kind does not allow.
    """
    found = pattern(body, expr, type_)
    allowed = {
        "exact": ("exact",),
        "optional": ("exact", "any"),
        "lpm": ("exact", "mask", "any"),
        "ternary": ("exact", "mask", "any"),
        "range": ("exact", "range", "any"),
    }[key.match]
    if found.kind not in allowed:
        what = {"any": "don't care", "mask": "a mask", "range": "a range"}[found.kind]
        raise CompileError(
            f"{what} cannot be used for {key.match} key {key.name!r}",
            expr.pos,
            " or ".join(_WRITTEN[k] for k in allowed),
        )
    scalar = key.expr.type
    full = _all_ones(scalar) if isinstance(scalar, ir.Bits) else 1
    if found.kind == "exact" and key.match in ("lpm", "ternary"):
        return ir.Pattern("mask", found.value & full, full)
    if found.kind == "exact" and key.match == "range":
        return ir.Pattern("range", found.value, found.value)
    if key.match == "lpm" and found.kind == "mask" and not _is_prefix(found.mask, full):
        raise CompileError(
            f"{found.mask:#x} is not a prefix mask", expr.pos, "ones from the left, then zeros"
        )
    return found


_WRITTEN = {"exact": "a value", "mask": "value &&& mask", "range": "low .. high", "any": "_"}


def _is_prefix(mask: int, full: int) -> bool:
    zeros = full ^ mask
    return zeros & (zeros + 1) == 0


def declare_value_set(body: Body, decl: ast.ValueSetDecl, prefix: str) -> None:
    """Declare a value set, and add its table to the program."""
    name = control_name(prefix, decl.name, decl.annotations)
    element = type_at(body, decl.element)
    keys: list[ir.Key] = []
    for field, type_, match in _fields(decl, element):
        scalar = t.lowered(type_)
        if not isinstance(scalar, ir.Bits | ir.Bool | ir.Enum):
            raise CompileError(
                f"a value set cannot contain {t.describe(type_)}", decl.pos, "bit<W>, or a struct of it"
            )
        variable = ir.Var(scalar, body.unit.variable(f"{name}.{field or 'value'}", scalar), pos=decl.pos)
        keys.append(ir.Key(field, variable, match))
    # The number sign hides this action from the control plane: see `ir.plain_name`.
    member = f"{name}#member"
    body.unit.actions[member] = ir.Action(member, (), (), pos=decl.pos)
    body.unit.tables[name] = ir.Table(
        name,
        tuple(keys),
        (ir.ActionRef(member),),
        ir.Invocation(member, ()),
        True,
        (),
        False,
        whole_number(body, decl.size),
        None,
        pos=decl.pos,
        annotations=ir_annotations(body, decl.annotations),
        value_set=True,
    )
    body.scope.declare(decl.name, Local(ValueSet(name, tuple(keys)), pos=decl.pos))


def _fields(decl: ast.ValueSetDecl, element: t.Type) -> list[tuple[str, t.Type, str]]:
    """Return (name, type, match kind) of each component of a value set; "exact" is the default."""
    shape = t.base(element)
    if isinstance(shape, t.StructType):
        found = []
        for name, type_ in shape.fields.items():
            inner = [(f"{name}.{key}", part, kind) for key, part, kind in _fields(decl, type_)]
            found += inner if isinstance(t.base(type_), t.StructType) else [(name, type_, shape.match(name))]
        return found
    if isinstance(shape, t.Tuple):
        return [(f"f{i}", type_, "exact") for i, type_ in enumerate(shape.elements)]
    return [("", element, "exact")]  # a single component has no name in P4Info, as in p4c


def look_up(body: Body, values: ValueSet, subjects: Sequence[ir.Expr], pos: ir.Position) -> ir.Var:
    """Emit the look-up of `subjects` in a value set; return a Bool variable with the result."""
    if len(subjects) != len(values.keys):
        raise CompileError(
            f"a value set of {len(values.keys)} values cannot match {len(subjects)} values of select",
            pos,
            "one value for each value of the select",
        )
    for key, subject in zip(values.keys, subjects, strict=True):
        if key.expr.type != subject.type:
            raise CompileError(f"value set {values.name!r} has other types than the select", pos)
        body.out.append(ir.Assign(key.expr, subject, pos=pos))
    hit = body.temporary(t.BOOL, "member", pos)
    body.out.append(ir.Apply(values.name, hit, None, pos=pos))
    return hit


_SCOPES = {"defaultonly": "default_only", "tableonly": "table_only"}


@dataclass(frozen=True, slots=True)
class Listed:
    """An action in a table's action list; `bound` are the source texts of its arguments in that list."""

    name: str
    action: DeclaredAction
    lowered: ir.Action
    formals: tuple[Formal, ...]
    bound: tuple[str, ...]
    ref: ir.ActionRef

    @property
    def free(self) -> tuple[Formal, ...]:
        """The parameters that are not bound in the action list: entries provide their values."""
        return self.formals[len(self.bound) :]


class ActionList:
    """The actions of one table, in the order of the source."""

    def __init__(self, listed: list[Listed], table: str) -> None:
        self._listed = listed
        self._table = table

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the actions in the source."""
        return tuple(listed.name for listed in self._listed)

    @property
    def exits(self) -> bool:
        """True if one of the actions may exit."""
        return any(listed.action.exits for listed in self._listed)

    def refs(self) -> tuple[ir.ActionRef, ...]:
        """Return the actions for the IR."""
        return tuple(listed.ref for listed in self._listed)

    def find(self, name: str, pos: ir.Position) -> Listed:
        """Return the action that the source calls `name`. Raises CompileError."""
        for listed in self._listed:
            if listed.name == name:
                return listed
        raise unknown(f"action of table {self._table!r}", name, self.names, pos)

    def add_no_action(self, body: Body, pos: ir.Position) -> str:
        """Return the control-plane name of NoAction, after adding it to the list if it is missing.

        NoAction is the default action of tables without ``default_action``. Raises CompileError.
        """
        for listed in self._listed:
            if listed.name == "NoAction":
                return listed.ref.action
        action = find_action(body, ast.ActionUse("NoAction", True, None, pos=pos))
        if action.decl.params:
            raise CompileError(
                f"NoAction, the default action of table {self._table!r}, has parameters",
                action.decl.pos,
                "the NoAction of core.p4, or a default_action",
            )
        lowered = shared_action(action, body, pos)
        annotation = ir.Annotation("defaultonly", "")
        ref = ir.ActionRef(lowered.name, "default_only", (annotation,))
        self._listed.append(Listed("NoAction", action, lowered, (), (), ref))
        return lowered.name


def action_list(body: Body, decl: ast.TableDecl) -> ActionList:
    """Return the actions of a table, lowered. Raises CompileError."""
    if decl.actions is None:
        raise CompileError(f"table {decl.name!r} has no actions", decl.pos, "actions = { … }")
    listed: list[Listed] = []
    for ref in decl.actions:
        item = _listed(body, ref)
        if any(item.lowered.name == other.lowered.name for other in listed):
            raise CompileError(f"action {ref.name!r} is listed twice", ref.pos, "each action once")
        listed.append(item)
    return ActionList(listed, decl.name)


def find_action(body: Body, ref: ast.ActionUse) -> DeclaredAction:
    """Return the action that `ref` names in the scope of `body`. Raises CompileError if there is none."""
    if body.scope.find(ref.name) is None:
        raise unknown("action", ref.name, _actions(body), ref.pos)
    symbol = body.scope.lookup(ref.name, ref.pos, absolute=ref.absolute)
    if isinstance(symbol, Local) and isinstance(symbol.item, DeclaredAction):
        return symbol.item
    raise CompileError(f"{ref.name!r} is not an action", ref.pos, "the name of an action")


def _actions(body: Body) -> list[str]:
    """Return the names of the actions that are visible in the scope of `body`."""
    found = []
    for name in body.scope.visible():
        symbol = body.scope.find(name)
        if isinstance(symbol, Local) and isinstance(symbol.item, DeclaredAction):
            found.append(name)
    return found


def _listed(body: Body, ref: ast.ActionUse) -> Listed:
    action = find_action(body, ref)
    formals = tuple(formals_of(body.unit, action.decl.params, action.scope))
    directional = [formal for formal in formals if formal.direction]
    args = ref.args or ()
    if len(args) != len(directional):
        names = ", ".join(formal.name for formal in directional) or "none"
        raise CompileError(
            f"{len(args)} arguments bound for action {ref.name!r}",
            ref.pos,
            f"one for each parameter with direction: {names}",
        )
    if any(arg.name is not None for arg in args):
        raise Unsupported("arguments by name in an action list", ref.pos, "arguments in order")
    texts = tuple(spelling(arg.value) for arg in args)
    if args:
        lowered = bound_action(body, action, tuple(arg.value for arg in args), texts, ref.pos)
    else:
        lowered = shared_action(action, body, ref.pos)
    if action.owner is None and action.exits and body.copy_outs:
        raise Unsupported(
            f"action {ref.name!r} exits from a control whose parameters are copied back", ref.pos
        )
    scope = next((_SCOPES[a.name] for a in ref.annotations if a.name in _SCOPES), "")
    ir_ref = ir.ActionRef(lowered.name, scope, ir_annotations(body, ref.annotations))
    return Listed(ref.name, action, lowered, formals, texts, ir_ref)


MAX_PRIORITY = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Order:
    """The properties of a table from which its entries' priorities follow.

    `largest_wins` is the value of ``largest_priority_wins``, `delta` the value of ``priority_delta``.
    """

    largest_wins: bool
    delta: int


def lower_invocation(body: Body, ref: ast.ActionUse, actions: ActionList, *, default: bool) -> ir.Invocation:
    """Return the action, with constant arguments, of an entry or (with `default`) of ``default_action``.

    Raises CompileError.
    """
    listed = actions.find(ref.name, ref.pos)
    if find_action(body, ref) is not listed.action:
        raise CompileError(
            f"{'.' * ref.absolute}{ref.name} is not the action that the table lists",
            ref.pos,
            f"the action declared at {listed.action.decl.pos}",
        )
    if default and listed.ref.scope == "table_only":
        raise CompileError(
            f"{ref.name!r} is @tableonly but the default action", ref.pos, "another default action"
        )
    if not default and listed.ref.scope == "default_only":
        raise CompileError(f"{ref.name!r} is @defaultonly but in an entry", ref.pos, "another action")
    args = ref.args or ()
    bound = len(listed.bound)
    if tuple(spelling(arg.value) for arg in args[:bound]) != listed.bound:
        raise CompileError(
            f"the arguments bound for {ref.name!r} differ from the action list's",
            ref.pos,
            ", ".join(listed.bound),
        )
    exprs = bind(f"action {ref.name}", listed.free, args[bound:], ref.pos)
    values = []
    for formal, expr in zip(listed.free, exprs, strict=True):
        value = known(body, expr, formal.type, f"argument {formal.name!r}")
        if isinstance(value, Run) and isinstance(value.expr, ir.Const):  # else an error was reported
            values.append(value.expr.value)
    return ir.Invocation(listed.ref.action, tuple(values))


def lower_entries(
    body: Body,
    entries: ast.Entries,
    keys: tuple[ir.Key, ...],
    types: tuple[t.Type, ...],
    actions: ActionList,
    order: Order,
) -> tuple[ir.ConstEntry, ...]:
    """Return the entries of a table with their priorities. Raises CompileError."""
    patterns = [_patterns(body, entry, keys, types) for entry in entries.entries]
    invocations = [lower_invocation(body, entry.action, actions, default=False) for entry in entries.entries]
    kinds = {key.match for key in keys}
    if kinds <= {"exact", "lpm"}:
        _refuse_repetition(entries.entries, patterns)
        for entry in entries.entries:
            if entry.priority is not None:
                raise CompileError(
                    "an entry has a priority, but the table has no ternary, range or optional key",
                    entry.priority.pos,
                    "no priority",
                )
        priorities = [_prefix_length(entry) for entry in patterns]
    else:
        priorities = _priorities(body, entries.entries, order)
    return tuple(map(ir.ConstEntry, patterns, invocations, priorities))


def _patterns(
    body: Body, entry: ast.EntryDecl, keys: tuple[ir.Key, ...], types: tuple[t.Type, ...]
) -> tuple[ir.Pattern, ...]:
    if len(entry.keys) == 1 and ast.is_word(entry.keys[0], "_", "default") and len(keys) > 1:
        exprs: tuple[ast.Expr, ...] = entry.keys * len(keys)
    elif len(entry.keys) == 1 and isinstance(entry.keys[0], ast.ListExpr):
        exprs = entry.keys[0].elements
    else:
        exprs = entry.keys
    if len(exprs) != len(keys):
        raise CompileError(f"an entry has {len(exprs)} values", entry.pos, f"{len(keys)}, one for each key")
    return tuple(entry_pattern(body, *parts) for parts in zip(exprs, keys, types, strict=True))


def _refuse_repetition(entries: Sequence[ast.EntryDecl], patterns: Sequence[tuple[ir.Pattern, ...]]) -> None:
    first: dict[tuple[ir.Pattern, ...], ir.Position] = {}
    for entry, key in zip(entries, patterns, strict=True):
        if key in first:
            raise CompileError(
                f"this entry has the same key as the one at {first[key]}", entry.pos, "each key once"
            )
        first[key] = entry.pos


def _prefix_length(patterns: tuple[ir.Pattern, ...]) -> int:
    """Return the priority of an entry in a table of exact and lpm keys: the length of its prefix in bits."""
    return sum(pattern.mask.bit_count() for pattern in patterns if pattern.kind == "mask" and pattern != ANY)


def _priorities(body: Body, entries: Sequence[ast.EntryDecl], order: Order) -> list[int]:
    """Return the entries' priorities; the largest wins. Raises CompileError.

    Priorities come from ``@priority`` or from ``priority =``. An entry without a priority follows the entry
    before it, at the distance `order.delta`. If no entry has a priority, the first entry wins.
    """
    if any(_annotated(entry) is not None for entry in entries):
        return _annotated_priorities(entries)
    step = -order.delta if order.largest_wins else order.delta
    priorities: list[int] = []
    for entry in entries:
        if entry.priority is not None:
            priority, pos = whole_number(body, entry.priority), entry.priority.pos
        elif priorities:
            priority, pos = priorities[-1] + step, entry.pos
        elif any(other.priority is not None for other in entries):
            raise CompileError("the first entry has no priority but others have", entry.pos, "priority = …")
        else:
            priority, pos = (1 + (len(entries) - 1) * order.delta if order.largest_wins else 1), entry.pos
        if not 0 < priority <= MAX_PRIORITY:
            raise CompileError(f"a priority of {priority}", pos, f"1 to {MAX_PRIORITY}")
        priorities.append(priority)
    return priorities if order.largest_wins else [MAX_PRIORITY + 1 - priority for priority in priorities]


def _annotated(entry: ast.EntryDecl) -> int | None:
    """Return the number in an entry's ``@priority(…)``; None without the annotation. Raises CompileError."""
    for annotation in entry.annotations:
        if annotation.name == "priority":
            try:
                return int(annotation.body, 0)
            except ValueError:
                raise CompileError(f"@priority({annotation.body})", annotation.pos, "a number") from None
    return None


def _annotated_priorities(entries: Sequence[ast.EntryDecl]) -> list[int]:
    """Return the priorities of entries with ``@priority``.

    The smallest ``@priority`` wins; of the returned priorities, the largest wins. An entry without
    the annotation counts as ``@priority`` with the entry's position in the table, from 1.
    """
    ranks = []
    for number, entry in enumerate(entries, start=1):
        given = _annotated(entry)
        ranks.append((number if given is None else given, number))
    return [len(ranks) - sorted(ranks).index(rank) for rank in ranks]
