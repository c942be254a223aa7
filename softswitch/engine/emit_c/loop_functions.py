"""Rolled loops as functions of their own.

Deep inside a larger function gcc takes a loop for cold code and does not vectorise it. What the loop needs
goes in and out by value, in registers: the state of the packet is passed only where the loop touches it, and
what nobody reads later does not come out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import all_statements, statement_expressions, subexpressions
from softswitch.engine.emit_c.statements import Body
from softswitch.engine.emit_c.text import PARAMETERS, Writer
from softswitch.engine.emit_c.walk import variables_read_first


@contextmanager
def loop_function(
    body: Body, scalars: Mapping[str, str], assigned: Set[str], passing: Set[str], *, lanes: bool
) -> Iterator[None]:
    """Write what is written inside as a function of its own, and here its call.

    Args:
        body: The function that the loop is part of.
        scalars: C locals that the loop mentions, with their types.
        assigned: Those of them that it assigns.
        passing: Those that nobody needs before the loop or behind it.
        lanes: Whether it reads `lanes`, a pointer into the frame.
    """
    out, inner = body.out, Writer()
    body.out = inner
    with inner.indented():
        yield
    body.out = out
    pointers = [
        *zip("spv", PARAMETERS.split(", "), strict=True),
        *((pointer, f"struct {group} *{pointer}") for (group, _), pointer in body.slots.items()),
        *((("lanes", "const uint8_t *restrict lanes"),) if lanes else ()),
    ]
    text = "\n".join(inner.lines)
    given = [(local, f"{c_type} {local}") for local, c_type in scalars.items() if local not in passing]
    parameters = {name: declared for name, declared in (*pointers, *given) if re.search(rf"\b{name}\b", text)}
    results = [local for local in scalars if local in assigned and local not in passing]
    name = body.unit.loop_names.unique("lanes_loop")
    result = f"struct {name}" if results else "void"
    loops = body.loops
    if results:
        with loops.block(result, "};"):
            for local in results:
                loops.line(f"{scalars[local]} {local};")
    with loops.block(f"P4_LANES {result} {name}({', '.join(parameters.values()) or 'void'})"):
        for local in sorted(passing):
            loops.line(f"{scalars[local]} {local} = 0;")
        loops.lines += inner.lines
        if results:
            loops.line(f"return ({result}){{{', '.join(results)}}};")
    loops.line()
    call = f"{name}({', '.join(parameters)});"
    if not results:
        out.line(call)
        return
    with out.block(""):
        out.line(f"{result} done = {call}")
        for local in results:
            out.line(f"{local} = done.{local};")


def passing_variables(body: Body, group: Sequence[ir.Stmt], repeats: int) -> set[str]:
    """Return the C locals that keep something from one statement of a repeated group to the next only.

    They are assigned before they are read in each repetition, and read nowhere else in the function.
    """
    carried, inside = variables_read_first(group, set()), reads(group)
    return {
        local
        for variable, local in body.expressions.locals.items()
        if inside[variable] and variable not in carried and repeats * inside[variable] == body.reads[variable]
    }


def reads(statements: Iterable[ir.Stmt]) -> Counter[str]:
    """Count how often variables are mentioned where that may read them."""
    found: Counter[str] = Counter()
    for statement in all_statements(statements):
        exprs = list(statement_expressions(statement))
        if isinstance(statement, ir.Assign) and isinstance(statement.target, ir.Var):
            exprs = [statement.value]
        for outer in exprs:
            found.update(expr.name for expr in subexpressions(outer) if isinstance(expr, ir.Var))
    return found
