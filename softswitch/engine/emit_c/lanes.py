"""Lane rolling: finds runs of statements with the same operation on consecutive fields and registers.

P4 has no loops, so a program that handles 256 lanes spells out a lane's operation 256 times. Two statements
are alike if they differ only in the array elements (`ArrayRef`) that they name. A run is a group of
statements that is repeated; from one repetition to the next, each array index stays the same or increases by
one. A run becomes a C loop over arrays, in a C function of its own. The C compiler vectorises this loop.

Deep inside a larger function gcc treats a loop as cold code and does not vectorise it. The loop's inputs and
outputs are passed by value, in registers. The packet's state is passed only to loops that access it, and
values that are not read later are not returned.

A large header stays in the frame until its fields are needed (`HeaderHome.where`). A loop over the header's
lanes can load them directly from the frame; a loop that overwrites all lanes loads none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields

from softswitch.compiler import ir
from softswitch.compiler.ir.verify import is_wide
from softswitch.compiler.ir.walk import (
    all_statements,
    child_expressions,
    sources,
    statement_expressions,
    subexpressions,
    targets,
    variables_read_first,
)
from softswitch.engine.emit_c.layout import ArrayRef, HeaderHome
from softswitch.engine.emit_c.statements import BodyWriter, where_name
from softswitch.engine.emit_c.text import (
    PARAMETERS,
    RESERVED,
    Names,
    Writer,
    c_integer,
    comment,
    storage_type,
)

MIN_REPEATS = 8
MAX_GROUP = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """A statement's shape: `key` is its structure without array indices, `elements` its array elements."""

    key: Hashable
    elements: tuple[ArrayRef, ...]


@dataclass(frozen=True, slots=True)
class LaneRun:
    """A run: `repeats` alike groups of `length` statements each, from statement number `start` on.

    From one group to the next, the index of array element k (of `elements`) increases by ``steps[k]``.
    """

    start: int
    length: int
    repeats: int
    elements: tuple[ArrayRef, ...]  # of the first group
    steps: tuple[int, ...]


Locate = Callable[[ir.Expr], ArrayRef | None]
LocateRegister = Callable[[str], ArrayRef | None]


def find_runs(body: Sequence[ir.Stmt], locate: Locate, locate_register: LocateRegister) -> Iterator[LaneRun]:
    """Yield the runs in `body`, in order and without overlap."""
    if len(body) < MIN_REPEATS:
        return
    shapes = [_shape(statement, locate, locate_register) for statement in body]
    position = 0
    while position < len(body):
        run = _longest_run(shapes, position)
        if run is None:
            position += 1
        else:
            yield run
            position += run.length * run.repeats


def _longest_run(shapes: Sequence[Shape | None], start: int) -> LaneRun | None:
    best: LaneRun | None = None
    for length in range(1, MAX_GROUP + 1):
        if start + length * MIN_REPEATS > len(shapes):
            break
        first = shapes[start : start + length]
        if None in first:
            break
        run = _run(shapes, start, length)
        if run is not None and (best is None or run.length * run.repeats > best.length * best.repeats):
            best = run
    return best


def _run(shapes: Sequence[Shape | None], start: int, length: int) -> LaneRun | None:
    first = _elements(shapes, start, length)
    steps: tuple[int, ...] | None = None
    repeats = 1
    while start + (repeats + 1) * length <= len(shapes):
        here = start + repeats * length
        for offset in range(length):
            one, other = shapes[start + offset], shapes[here + offset]
            if one is None or other is None or one.key != other.key:
                break
        else:
            moved = tuple(
                b.index - a.index for a, b in zip(first, _elements(shapes, here, length), strict=True)
            )
            if steps is None:
                steps = moved
            if (
                all(step in (0, 1) for step in steps)
                and any(steps)
                and moved == tuple(repeats * step for step in steps)
            ):
                repeats += 1
                continue
        break
    if repeats < MIN_REPEATS or steps is None:
        return None
    if len(set(zip(first, steps, strict=True))) > len(set(first)):
        return None  # an element of the first group both moves and stays
    return LaneRun(start, length, repeats, first, steps)


def _elements(shapes: Sequence[Shape | None], start: int, length: int) -> tuple[ArrayRef, ...]:
    return tuple(
        element for shape in shapes[start : start + length] if shape is not None for element in shape.elements
    )


def _shape(statement: ir.Stmt, locate: Locate, locate_register: LocateRegister) -> Shape | None:
    """Return the shape of a statement that may be in a loop, else None."""
    elements: list[ArrayRef] = []

    def expression(expr: ir.Expr) -> Hashable:
        element = locate(expr)
        if element is not None:
            elements.append(element)
            return element.array
        if _escapes(expr):
            raise _NotRollable
        own = tuple(
            getattr(expr, item.name)
            for item in fields(expr)
            if item.name != "pos" and not isinstance(getattr(expr, item.name), ir.Expr)
        )
        return type(expr).__name__, own, tuple(expression(child) for child in child_expressions(expr))

    def body(statements: Sequence[ir.Stmt]) -> Hashable:
        return tuple(visit(inner) for inner in statements)

    def visit(inner: ir.Stmt) -> Hashable:
        match inner:
            case ir.Assign(target=target, value=value):
                return "assign", expression(target), expression(value)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                return "if", expression(condition), body(then), body(otherwise)
            case ir.Extern(function="register.read" | "register.write" as function, instance=name, args=args):
                element = locate_register(name)
                if element is not None:
                    elements.append(element)
                where = name if element is None else element.array
                return function, where, tuple(expression(expr) for arg in args for expr in arg)
            case _:
                raise _NotRollable

    try:
        key = visit(statement)
    except _NotRollable:
        return None
    return Shape(key, tuple(elements))


def _escapes(expr: ir.Expr) -> bool:
    """Return True if `expr` reads values from memory, or if its values are too wide for arithmetic.

    Such an expression cannot be in a rolled loop. While the loop runs, the current values of scalars are in C
    locals, and memory holds old values. Operations on whole headers, stacks or structs read memory, and so do
    elements of stacks with run-time indices.
    """
    match expr:
        case ir.Const() | ir.Var(type=ir.Header() | ir.Stack() | ir.Struct()):
            return False
        case ir.Member(type=ir.Header() | ir.Stack() | ir.Struct()):
            return False
        case ir.Index(index=index):
            return not isinstance(index, ir.Const)
        case ir.Binary(left=left) if isinstance(left.type, ir.Header | ir.Stack | ir.Struct):
            return True
        case _:
            return not isinstance(expr.type, ir.Bits | ir.Bool | ir.Enum) or is_wide(expr.type)


class _NotRollable(Exception):
    """A statement that cannot be in a rolled loop."""


def independent(run: LaneRun) -> bool:
    """Return True if no two repetitions of a run access the same array element.

    Registers outside arrays are not checked here.
    """
    first_index: dict[str, int] = {}
    for element, step in zip(run.elements, run.steps, strict=True):
        if step == 0 or first_index.setdefault(element.array, element.index) != element.index:
            return False
    return True


def mentioned(body: Sequence[ir.Stmt]) -> Iterator[ir.Expr]:
    """Yield the outermost expressions of all statements in `body`."""
    for statement in all_statements(body):
        yield from statement_expressions(statement)


@contextmanager
def loop_function(
    body: BodyWriter, scalars: Mapping[str, str], assigned: Set[str], passing: Set[str], *, lanes: bool
) -> Iterator[None]:
    """Write the code that the ``with`` block emits as a separate C function, and emit a call of it here.

    Args:
        body: The function that contains the loop.
        scalars: C locals that the loop mentions, with their types.
        assigned: The locals that the loop assigns.
        passing: The locals that are used only inside the loop.
        lanes: True if the loop reads ``lanes``, a pointer into the frame.
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


def passing_variables(body: BodyWriter, group: Sequence[ir.Stmt], repeats: int) -> set[str]:
    """Return the C locals that only carry a value between statements of the same repeated group.

    They are assigned before they are read in each repetition, and read nowhere else in the function.
    """
    carried, inside = variables_read_first(group, set()), reads(group)
    return {
        local
        for variable, local in body.expressions.locals.items()
        if inside[variable] and variable not in carried and repeats * inside[variable] == body.reads[variable]
    }


def reads(statements: Iterable[ir.Stmt]) -> Counter[str]:
    """Return how often `statements` mention each variable in a place where it may be read."""
    found: Counter[str] = Counter()
    for statement in all_statements(statements):
        exprs = list(statement_expressions(statement))
        if isinstance(statement, ir.Assign) and isinstance(statement.target, ir.Var):
            exprs = [statement.value]
        for outer in exprs:
            found.update(expr.name for expr in subexpressions(outer) if isinstance(expr, ir.Var))
    return found


@dataclass(frozen=True, slots=True)
class Lazy:
    """A run's use of a large header: the run visits each lane of the header once, in order."""

    home: HeaderHome
    element: ArrayRef
    offset: int  # bytes from the header's start to its first lane
    bits: int
    read: bool  # lanes are read before they are written
    written: bool


def find_lazy(body: BodyWriter, group: Sequence[ir.Stmt], run: LaneRun) -> Lazy | None:
    """Return the use of the only large header in a run.

    Return None if the header's lanes must be loaded into storage before the loop, or if the run does not use
    exactly one large header.
    """
    fields = list(_large_fields(body, mentioned(group)))
    places = {(place.text, place.array) for place in fields}
    if len(places) != 1:
        return None
    home, element = fields[0].owner, fields[0].array
    if home is None or home.where in body.brought or element is None or element.index != 0:
        return None
    layout = home.layout
    if len(layout.runs) != 1 or layout.varbit is not None:
        return None
    lanes = layout.runs[0]
    if lanes.count != len(layout.slots) or run.repeats != lanes.count:
        return None
    if not all(step == 1 for found, step in zip(run.elements, run.steps, strict=True) if found == element):
        return None
    read = written = False
    for statement in group:
        large = _writes(body, statement)
        mentions = list(sources(statement) if large else statement_expressions(statement))
        if isinstance(statement, ir.If):
            mentions += mentioned(statement.then + statement.otherwise)
            if any(_writes(body, inner) for inner in all_statements(statement.then + statement.otherwise)):
                return None
        read |= not written and any(True for _ in _large_fields(body, mentions))
        written |= large
        read |= large and isinstance(targets(statement)[0], ir.Slice)
    return Lazy(home, element, layout.slots[0].offset // 8, lanes.bits, read, written)


def _large_fields(body: BodyWriter, exprs: Iterable[ir.Expr]) -> Iterator[_LargeField]:
    for outer in exprs:
        for expr in subexpressions(outer):
            if isinstance(expr, ir.Member) and isinstance(expr.base.type, ir.Header):
                place = body.expressions.scalar(expr)
                if place.owner is not None:
                    yield _LargeField(place.text, place.array, place.owner)


@dataclass(frozen=True, slots=True)
class _LargeField:
    text: str
    array: ArrayRef | None
    owner: HeaderHome | None


def _writes(body: BodyWriter, statement: ir.Stmt) -> bool:
    return any(True for _ in _large_fields(body, targets(statement)))


def write_statements(body: BodyWriter, statements: Sequence[ir.Stmt]) -> None:
    """Write `statements`, with loops where they repeat themselves."""

    def locate(expr: ir.Expr) -> ArrayRef | None:
        return _array_of(body, expr)

    def locate_register(name: str) -> ArrayRef | None:
        return body.unit.registers.cells[name].array

    position = 0
    for run in find_runs(statements, locate, locate_register):
        body.plain(statements[position : run.start])
        _write_run(body, statements[run.start : run.start + run.length], run)
        position = run.start + run.length * run.repeats
    body.plain(statements[position:])


def _array_of(body: BodyWriter, expr: ir.Expr) -> ArrayRef | None:
    if not isinstance(expr, ir.Member) or not isinstance(expr.base, ir.Member | ir.Var):
        return None
    if not isinstance(expr.base.type, ir.Header) or isinstance(expr.type, ir.VarBits):
        return None
    return body.expressions.scalar(expr).array


def _write_run(body: BodyWriter, group: Sequence[ir.Stmt], run: LaneRun) -> None:
    """Write a run as a loop.

    Inside the loop the packet's scalars are in C locals, so that the loop accesses only
    its arrays. Where the register index is in range, the slot is looked up once, before the loop.
    """
    out, expressions = body.out, body.expressions
    lazy = find_lazy(body, group, run)
    if lazy is None:
        body.bring(mentioned(group))
    else:
        body.bring_but(mentioned(group), lazy.home)
    assigned = _assigned(body, group)
    first, last = group[0].pos, group[-1].pos
    lines = "" if first.line == last.line else f" to line {last.line}"
    out.line(f"/* {run.repeats} times {comment(first)}{lines} */")
    with out.block(""):
        aliases = _load_scalars(body, group)
        expressions.aliases |= aliases
        expressions.elements |= dict(_element_texts(run))
        slots = _hoisted(body, group, assigned | {aliases.get(text, text) for text in assigned})
        if slots:
            with out.block(f"if ({' && '.join(guard for _, guard in slots.values())})"):
                for (group_name, index), (pointer, _) in slots.items():
                    out.line(f"struct {group_name} *{pointer} = &s->{group_name}[{index}];")
                    body.slots[group_name, index] = pointer
                if lazy is None:
                    _write_loop(body, group, run, vectorise=_independent(body, group, run))
                else:
                    _write_lazy_loops(body, group, run, lazy)
                for key in slots:
                    del body.slots[key]
            with out.block("else"):
                body.bring(mentioned(group))
                _write_loop(body, group, run, vectorise=False)
        else:
            body.bring(mentioned(group))
            _write_loop(body, group, run, vectorise=False)
        for text, local in aliases.items():
            del expressions.aliases[text]
            if text in assigned:
                out.line(f"{text} = {local};")
        for element in run.elements:
            expressions.elements.pop(element, None)
    if lazy is not None and lazy.home.where is not None and not lazy.written and slots:
        body.brought.discard(lazy.home.where)  # it may still be in the frame


def _write_lazy_loops(body: BodyWriter, group: Sequence[ir.Stmt], run: LaneRun, lazy: Lazy) -> None:
    """Write the loop over lanes twice: for lanes that are still read from the frame, and for copied ones."""
    out, home = body.out, lazy.home
    assert home.where is not None
    body.brought.add(home.where)  # for the loops only
    if lazy.read:
        _write_frame_and_storage_loops(body, group, run, lazy)
    else:
        _write_loop(body, group, run, vectorise=_independent(body, group, run))
        out.line(f"{home.where} = P4_STORED;")
    body.brought.discard(home.where)


def _write_frame_and_storage_loops(
    body: BodyWriter, group: Sequence[ir.Stmt], run: LaneRun, lazy: Lazy
) -> None:
    out, home = body.out, lazy.home
    stored = body.expressions.elements[lazy.element]
    with out.block(f"if ({home.where} >= P4_IN_FRAME)"):
        at = f"({home.where} - P4_IN_FRAME)"
        out.line(f"const uint8_t *lanes = p->frame + {at}{f' + {lazy.offset}' if lazy.offset else ''};")
        with _loop_function(body, group, run, lanes=True):
            _open_loop(body, vectorise=_independent(body, group, run))
            with body.out.block(f"for (size_t i = 0; i < {run.repeats}; i++)"):
                load = "lanes[i]" if lazy.bits == 8 else f"p4_load{lazy.bits}(lanes + {lazy.bits // 8} * i)"
                body.out.line(f"{c_integer(lazy.bits)} lane = {load};")
                body.expressions.elements[lazy.element] = "lane"
                body.plain(group)
                body.expressions.elements[lazy.element] = stored
                if lazy.written:
                    body.out.line(f"{stored} = lane;")
        if lazy.written:
            out.line(f"{home.where} = P4_STORED;")
    with out.block("else"):
        out.line(f"bring_{where_name(home)}(p);")
        _write_loop(body, group, run, vectorise=_independent(body, group, run))


def _write_loop(body: BodyWriter, group: Sequence[ir.Stmt], run: LaneRun, *, vectorise: bool) -> None:
    with _loop_function(body, group, run):
        _open_loop(body, vectorise=vectorise)
        with body.out.block(f"for (size_t i = 0; i < {run.repeats}; i++)"):
            body.plain(group)


def _loop_function(
    body: BodyWriter, group: Sequence[ir.Stmt], run: LaneRun, *, lanes: bool = False
) -> AbstractContextManager[None]:
    scalars = {text: storage_type(type_) for text, type_ in _scalars(body, mentioned(group))}
    passing = passing_variables(body, group, run.repeats) & scalars.keys()
    return loop_function(body, scalars, _assigned(body, group), passing, lanes=lanes)


def _open_loop(body: BodyWriter, *, vectorise: bool) -> None:
    if vectorise:
        body.out.line(
            "#pragma GCC ivdep",
            "P4_UNROLLED",
        )


def _independent(body: BodyWriter, group: Sequence[ir.Stmt], run: LaneRun) -> bool:
    """Return True if the repetitions of `run` may be executed in any order, apart from effects on scalars."""
    registers = {
        statement.instance for statement in all_statements(group) if isinstance(statement, ir.Extern)
    }
    return independent(run) and all(body.unit.registers.cells[name].array for name in registers)


def _element_texts(run: LaneRun) -> Iterator[tuple[ArrayRef, str]]:
    for element, step in zip(run.elements, run.steps, strict=True):
        index = str(element.index)
        if step:
            index = f"i + {index}" if element.index else "i"
        # Registers are named "group.array" and reached through their slot.
        array = element.array if "->" in element.array else element.array.split(".", 1)[1]
        yield element, f"{array}[{index}]"


def _scalars(body: BodyWriter, exprs: Iterator[ir.Expr]) -> Iterator[tuple[str, ir.Scalar]]:
    """Yield C lvalue and type of every scalar in `exprs` that is not an array element."""
    for outer in exprs:
        for expr in subexpressions(outer):
            if not isinstance(expr, ir.Var | ir.Member) or not isinstance(
                expr.type, ir.Bits | ir.Bool | ir.Enum
            ):
                continue
            place = body.expressions.scalar(expr)
            if place.array is None and place.guard is None and not is_wide(expr.type):
                yield place.text, expr.type


def _load_scalars(body: BodyWriter, group: Sequence[ir.Stmt]) -> dict[str, str]:
    names = _names(body)
    aliases: dict[str, str] = {}
    for text, type_ in _scalars(body, mentioned(group)):
        if "->" in text and text not in aliases:
            aliases[text] = names.unique(re.sub(r"\W+", "_", text.split("->", 1)[1]))
            body.out.line(f"{storage_type(type_)} {aliases[text]} = {text};")
    return aliases


def _assigned(body: BodyWriter, group: Sequence[ir.Stmt]) -> set[str]:
    """Return the C lvalues of the scalars that `group` assigns."""
    places = (place for statement in all_statements(group) for place in targets(statement))
    return {text for text, _ in _scalars(body, places)}


def _hoisted(
    body: BodyWriter, group: Sequence[ir.Stmt], assigned: set[str]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the register slots that a loop accesses with an index that is constant during the loop.

    The result maps (group, C text of the index) to (name of a pointer to the slot, condition that it exists).
    """
    names = _names(body)
    slots: dict[tuple[str, str], tuple[str, str]] = {}
    for statement in all_statements(group):
        if not isinstance(statement, ir.Extern):
            continue
        index = statement.args[1 if statement.function == "register.read" else 0][0]
        cell = body.unit.registers.cells[statement.instance]
        text = body.expressions.index(index)
        if (cell.group, text) in slots or any(_array_of(body, expr) for expr in subexpressions(index)):
            continue
        if assigned.isdisjoint(found for found, _ in _scalars(body, iter([index]))):
            slots[cell.group, text] = names.unique("slot"), f"{text} < {cell.size}"
    return slots


def _names(body: BodyWriter) -> Names:
    """Return an object that hands out names that are unused in the scope."""
    names = Names()
    expressions = body.expressions
    for taken in (*RESERVED, *expressions.locals.values(), *expressions.aliases.values()):
        names.unique(taken)
    return names
