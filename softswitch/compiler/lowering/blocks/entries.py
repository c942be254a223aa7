"""Entries in the source: patterns, actions with their arguments, priorities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks.table_actions import ActionList, find_action
from softswitch.compiler.lowering.expressions.check import known, whole_number
from softswitch.compiler.lowering.expressions.keysets import ANY, entry_pattern
from softswitch.compiler.lowering.passing import bind
from softswitch.compiler.lowering.syntax import spelling
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import Run

MAX_PRIORITY = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Order:
    """How a table numbers its entries: ``largest_priority_wins`` and ``priority_delta``."""

    largest_wins: bool
    delta: int


def lower_invocation(body: Body, ref: ast.ActionRef, actions: ActionList, *, default: bool) -> ir.Invocation:
    """Return an action of the table with constant arguments. Raises CompileError."""
    listed = actions.find(ref.name, ref.pos)
    if find_action(body, ref) is not listed.action:
        message = f"{'.' * ref.absolute}{ref.name} is another action than the one that the table lists"
        raise CompileError(message, ref.pos, f"the action declared at {listed.action.decl.pos}")
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
            f"the arguments bound for {ref.name!r} are not those of the action list",
            ref.pos,
            ", ".join(listed.bound),
        )
    exprs = bind(f"action {ref.name}", listed.free, args[bound:], ref.pos)
    values = []
    for formal, expr in zip(listed.free, exprs, strict=True):
        value = known(body, expr, formal.type, f"argument {formal.name!r}")
        if isinstance(value, Run) and isinstance(value.expr, ir.Const):  # else its parameter was refused
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
                message = "a priority in a table without ternary, range or optional key"
                raise CompileError(message, entry.priority.pos, "no priority")
        priorities = [_prefix_length(entry) for entry in patterns]
    else:
        priorities = _priorities(body, entries.entries, order)
    return tuple(map(ir.ConstEntry, patterns, invocations, priorities))


def _patterns(
    body: Body, entry: ast.Entry, keys: tuple[ir.Key, ...], types: tuple[t.Type, ...]
) -> tuple[ir.Pattern, ...]:
    if len(entry.keys) == 1 and isinstance(entry.keys[0], ast.Default | ast.DontCare) and len(keys) > 1:
        exprs: tuple[ast.Expr, ...] = entry.keys * len(keys)
    elif len(entry.keys) == 1 and isinstance(entry.keys[0], ast.ListExpr):
        exprs = entry.keys[0].elements
    else:
        exprs = entry.keys
    if len(exprs) != len(keys):
        raise CompileError(f"an entry of {len(exprs)} values", entry.pos, f"{len(keys)}, one for each key")
    return tuple(entry_pattern(body, *parts) for parts in zip(exprs, keys, types, strict=True))


def _refuse_repetition(entries: Sequence[ast.Entry], patterns: Sequence[tuple[ir.Pattern, ...]]) -> None:
    first: dict[tuple[ir.Pattern, ...], ir.Position] = {}
    for entry, key in zip(entries, patterns, strict=True):
        if key in first:
            raise CompileError(
                f"this entry has the key of the one at {first[key]}", entry.pos, "each key once"
            )
        first[key] = entry.pos


def _prefix_length(patterns: tuple[ir.Pattern, ...]) -> int:
    """Return the number of bits that the entry looks at in an lpm key: the longest prefix wins."""
    return sum(pattern.mask.bit_count() for pattern in patterns if pattern.kind == "mask" and pattern != ANY)


def _priorities(body: Body, entries: Sequence[ast.Entry], order: Order) -> list[int]:
    """Return priorities, of which the largest wins: from the source, or downwards from the first entry."""
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


def _annotated(entry: ast.Entry) -> int | None:
    """Return the number in ``@priority(…)``, of which the smallest wins."""
    for annotation in entry.annotations:
        if annotation.name == "priority":
            try:
                return int(annotation.body, 0)
            except ValueError:
                raise CompileError(f"@priority({annotation.body})", annotation.pos, "a number") from None
    return None


def _annotated_priorities(entries: Sequence[ast.Entry]) -> list[int]:
    """Return priorities by ``@priority``; entries without one count as if numbered from 1."""
    ranks = []
    for number, entry in enumerate(entries, start=1):
        given = _annotated(entry)
        ranks.append((number if given is None else given, number))
    return [len(ranks) - sorted(ranks).index(rank) for rank in ranks]
