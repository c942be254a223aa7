"""Match-action tables as C: entry structs, lookups, descriptions for the control plane.

The entries for a packet's look-ups are fetched into the cache while other packets are processed, because
memory access takes longer than all other work on a packet. Most keys are fields of the received packet:
parsing finds them before the packet's turn. Of this early parser, the C compiler keeps only the parts that
lead to a key. If the program changes a key, the wrong entry is fetched; the results do not depend on this
fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from softswitch.compiler import ir
from softswitch.compiler.ir.verify import MAX_COMPUTED, is_wide, too_wide
from softswitch.compiler.ir.walk import all_statements, nested_bodies, subexpressions
from softswitch.engine.emit_c.blocks import open_body, pattern_tests
from softswitch.engine.emit_c.externs import cost
from softswitch.engine.emit_c.statements import BodyWriter
from softswitch.engine.emit_c.text import (
    PARAMETERS,
    Names,
    Writer,
    c_integer,
    class_bits,
    comment,
    literal,
    storage_type,
    unparenthesised,
)
from softswitch.engine.emit_c.unit import Translation
from softswitch.engine.entries import RANGE_WORDS, TableEntries, TableLayout

# --------------------------------------------------------------------------- declarations


def declare_table(unit: Translation, layout: TableLayout, out: Writer) -> None:
    """Write the structs of a table: arguments of its actions, an entry, the default action."""
    name = unit.table_names[layout.table.name]
    with out.block(f"union {name}_args", "};"):
        out.line("char none;")
        for member, action in zip(action_members(layout), layout.actions, strict=True):
            params = unit.program.actions[action].params
            if params:
                with out.block("struct", f"}} {member};"):
                    for param in params:
                        if is_wide(param.type):
                            raise too_wide(
                                f"parameter {param.name}", ir.width_of(param.type), layout.table.pos
                            )
                        out.line(f"{storage_type(param.type)} {param_names(unit, action)[param.name]};")
    out.line()
    if layout.kind in ("exact", "lpm", "ordered"):
        with out.block(f"struct {name}_entry", "};"):
            if layout.kind == "ordered":
                out.line(f"uint64_t value[{layout.words}], mask[{layout.words}];")
                if layout.ranges:
                    out.line(
                        f"uint64_t low[{RANGE_WORDS * layout.ranges}];",
                        f"uint64_t high[{RANGE_WORDS * layout.ranges}];",
                    )
            else:
                out.line(f"uint64_t key[{layout.words}];")
            out.line("struct p4_match match;")
            if layout.table.direct_counter is not None:
                out.line("struct p4_hits hits;")
            if layout.table.direct_meter is not None:
                out.line("struct p4_meter meter;")
            if layout.table.idle_timeout:
                out.line("uint64_t last_us;")
            for number, cell in enumerate(layout.table.cells):
                assert isinstance(cell.place.type, ir.Scalar)
                out.line(f"{storage_type(cell.place.type)} cell_{number};")
            out.line(f"union {name}_args args;")
        out.line()
    with out.block(f"struct {name}_default", "};"):
        out.line("struct p4_match match;")
        if layout.table.direct_counter is not None:
            out.line("struct p4_hits hits;")
        if layout.table.direct_meter is not None:
            out.line("struct p4_meter meter;")
        out.line(f"union {name}_args args;")
    out.line()
    with out.block(f"static const struct p4_param params_{name}[] =", "};"):
        for number, (member, action) in enumerate(zip(action_members(layout), layout.actions, strict=True)):
            for param_name in param_names(unit, action).values():
                place = f"{member}.{param_name}"
                size = f"sizeof(((union {name}_args *)0)->{place})"
                out.line(f"{{{number}, {size}, offsetof(union {name}_args, {place})}},")
        out.line("{0, 0, 0},")
    out.line()


def state_members(unit: Translation, layout: TableLayout) -> list[str]:
    """Return the members of ``struct p4_pipeline`` that a table has besides ``tables[]``."""
    name = unit.table_names[layout.table.name]
    members = [f"struct {name}_default default_{name};"]
    if layout.kind == "code" and layout.table.direct_counter is not None:
        members.append(f"struct p4_hits hits_{name}[{max(1, len(layout.table.entries))}];")
    return members


def describe_tables(unit: Translation, layouts: Sequence[TableLayout], out: Writer) -> None:
    """Write ``p4_table_kinds``, through which the control plane accesses any table."""
    with out.block("static const struct p4_table_kind p4_table_kinds[] =", "};"):
        for layout in layouts:
            name = unit.table_names[layout.table.name]
            kind = {"exact": "P4_EXACT", "lpm": "P4_LPM", "ordered": "P4_ORDERED"}.get(
                layout.kind, "P4_FIXED"
            )
            entry = "0, 0, 0"
            if kind != "P4_FIXED":
                struct = f"struct {name}_entry"
                entry = f"sizeof({struct}), offsetof({struct}, match), offsetof({struct}, args)"
            default = f"offsetof(struct p4_pipeline, default_{name}.match)"
            args = f"offsetof(struct p4_pipeline, default_{name}.args)"
            hits = "0"
            if layout.kind == "code" and layout.table.direct_counter is not None:
                hits = f"offsetof(struct p4_pipeline, hits_{name})"
            out.line(
                f'{{"{layout.table.name}", {kind}, {layout.words}, {layout.match_words},',
                f" {layout.bits}, {layout.prefix_top}, {layout.prefix_width},",
                f" {entry},",
                f" {default}, {args}, {hits},",
            )
            own = _parts(layout, f"struct {name}_entry") if kind != "P4_FIXED" else "0"
            of_default = _parts(layout, "struct p4_pipeline", f"default_{name}.")
            out.line(f" {{{own}}}, {{{of_default}}}, params_{name}}},")
        out.line("{NULL, P4_FIXED, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, NULL},")
    out.line()


def _parts(layout: TableLayout, struct: str, prefix: str = "") -> str:
    """Return the offsets of counter, meter and last hit of an entry in `struct`, 0 for missing ones."""
    table = layout.table
    timed = table.idle_timeout and not prefix  # a default action is never idle
    return ", ".join(
        f"offsetof({struct}, {prefix}{member})" if present else "0"
        for member, present in (
            ("hits", table.direct_counter is not None),
            ("meter", table.direct_meter is not None),
            ("last_us", timed),
        )
    )


def action_members(layout: TableLayout) -> list[str]:
    """Return the C member names in the union of a table's arguments, one for each action."""
    names = Names()
    names.unique("none")
    return [names.unique(action.rsplit(".", 1)[-1]) for action in layout.actions]


def param_names(unit: Translation, action: str) -> dict[str, str]:
    """Return the C member name for each parameter of an action, by the parameter's name."""
    names = Names()
    return {param.name: names.unique(param.name) for param in unit.program.actions[action].params}


# --------------------------------------------------------------------------- apply


def emit_apply(unit: Translation, layout: TableLayout, number: int, out: Writer) -> None:
    """Write the C function that applies a table: it looks up, runs the action, and returns hit and action."""
    table = layout.table
    name = unit.table_names[table.name]
    out.line(f"/* table {table.name}, {comment(table.pos)} */")
    with out.block(f"P4_FUNCTION struct p4_outcome apply_{name}({PARAMETERS})"):
        out.line("(void)s, (void)p, (void)v;")
        body = open_body(unit, out, (), leave="")
        body.prepare(key.expr for key in table.keys)
        for line in _cells(body, table, "{0} = {2};"):
            out.line(line)
        match layout.kind:
            case "none":
                pass
            case "code":
                _emit_code(body, layout)
            case _:
                _emit_lookup(body, layout, number)
        _emit_resources(body, table, f"s->default_{name}", timed=False)
        if table.const_default:
            _emit_invocation(body, layout, table.default)
            out.line(_outcome(0, str(layout.actions.index(table.default.action))))
        else:
            _emit_dispatch(body, layout, f"s->default_{name}.match.action", f"s->default_{name}.args")
            out.line(_outcome(0, f"s->default_{name}.match.action"))
    out.line()


def _emit_resources(body: BodyWriter, table: ir.Table, place: str, *, timed: bool) -> None:
    """Write the update of the direct counter, the direct meter and the time of the last hit.

    They belong to the entry or the default action that is the C lvalue `place`.
    """
    out = body.out
    if table.direct_counter is not None:
        out.line(f"p4_hit(&{place}.hits, {body.unit.architecture.counted});")
    if timed and table.idle_timeout:
        out.line(f"{place}.last_us = s->now_us;")
    if table.direct_meter is not None:
        meter, size = body.unit.program.meters[table.direct_meter], body.unit.architecture.counted
        colour = body.expressions.scalar(ir.Var(ir.Bits(2), meter.colour, pos=table.pos))
        out.line(
            f"{colour.text} = ({c_integer(class_bits(2))})"
            f"p4_meter(&{place}.meter, s->now_us, {cost(meter, size)}, {size});"
        )


def _outcome(hit: int, action: str, *, leave: int = 0) -> str:
    return f"return (struct p4_outcome){{.hit = {hit}, .action = {action}, .leave = {leave}}};"


def _run(body: BodyWriter, action: str, hit: int, number: str) -> None:
    call = f"action_{body.unit.action_names[action]}(s, p, v)"
    if action in body.unit.leaving_actions:
        body.out.when(call, _outcome(hit, number, leave=1))
    else:
        body.out.line(f"{call};")


def _emit_invocation(
    body: BodyWriter, layout: TableLayout, invocation: ir.Invocation, *, hit: int = 0
) -> None:
    params = body.unit.program.actions[invocation.action].params
    for param, value in zip(params, invocation.args, strict=True):
        target = body.expressions.scalar(ir.Var(param.type, param.variable, pos=layout.table.pos))
        body.out.line(f"{target.text} = {literal(value, ir.width_of(param.type))};")
    _run(body, invocation.action, hit, str(layout.actions.index(invocation.action)))


def _emit_dispatch(body: BodyWriter, layout: TableLayout, number: str, args: str, *, hit: int = 0) -> None:
    out = body.out
    with out.block(f"switch ({number})"):
        for position, (member, action) in enumerate(zip(action_members(layout), layout.actions, strict=True)):
            out.line(f"case {position}:")
            with out.indented():
                for param in body.unit.program.actions[action].params:
                    target = body.expressions.scalar(ir.Var(param.type, param.variable, pos=layout.table.pos))
                    source = param_names(body.unit, action)[param.name]
                    out.line(f"{target.text} = {args}.{member}.{source};")
                _run(body, action, hit, number)
                out.line("break;")
        out.line("default:")
        with out.indented():
            out.line("break;")


def _emit_code(body: BodyWriter, layout: TableLayout) -> None:
    """Write a look-up in C code: one comparison for each constant entry, in the order of precedence."""
    out, table = body.out, layout.table
    name = body.unit.table_names[table.name]
    state = TableEntries(body.unit.program, table)
    positions = {entry: position for position, entry in enumerate(state.entries())}
    keys = []
    for number, part in enumerate(layout.parts):
        text = body.expressions.text(part.key.expr)
        out.line(
            f"const {c_integer(class_bits(part.width))} key_{number} = {text};",
            f"(void)key_{number};",
        )
        keys.append((f"key_{number}", ir.Bits(part.width)))
    for entry in state.ordered():
        tests = pattern_tests(entry.patterns, keys)
        condition = unparenthesised(tests[0]) if len(tests) == 1 else " && ".join(tests) or "1"
        with out.block(f"if ({condition})"):
            if table.direct_counter is not None:
                out.line(f"p4_hit(&s->hits_{name}[{positions[entry]}], {body.unit.architecture.counted});")
            _emit_invocation(body, layout, entry.invocation, hit=1)
            out.line(_outcome(1, str(layout.actions.index(entry.invocation.action))))


def _emit_lookup(body: BodyWriter, layout: TableLayout, number: int) -> None:
    out, table = body.out, layout.table
    name = body.unit.table_names[table.name]
    words = ", ".join(_key_words(body, layout))
    out.line(f"const uint64_t key[{layout.words}] = {{{words}}};")
    if layout.kind == "ordered":
        ranged = [
            body.expressions.text(part.key.expr) for part in layout.parts if part.range_index is not None
        ]
        out.line(f"const p4_u128 ranged[{max(1, len(ranged))}] = {{{', '.join(ranged) or '0'}}};")
    out.line(f"struct {name}_entry *entry = {_find_call(layout, name, number)};")
    with out.block("if (entry)"):
        _emit_resources(body, table, "(*entry)", timed=True)
        for line in _cells(body, table, "{0} = entry->cell_{1} ^ {2};"):
            out.line(line)
        _emit_dispatch(body, layout, "entry->match.action", "entry->args", hit=1)
        for line in _cells(body, table, "entry->cell_{1} = {0} ^ {2};"):
            out.line(line)
        out.line(_outcome(1, "entry->match.action"))


def _find_call(layout: TableLayout, name: str, number: int) -> str:
    """Return the C call that looks up the key, whose words are in ``key`` and, for ranges, ``ranged``."""
    find = f"&s->tables[{number}], key, {layout.words}"
    size = f"sizeof(struct {name}_entry)"
    match layout.kind:
        case "exact":
            return f"p4_find({find}, {size}, 1)"
        case "lpm":
            return f"p4_find_longest({find}, {size}, {layout.prefix_top})"
        case _:
            return f"p4_find_first({find}, ranged, {layout.ranges}, {size})"


def _cells(body: BodyWriter, table: ir.Table, template: str) -> Iterator[str]:
    """Yield `template` filled in for each cell: {0} is its C place, {1} its number, {2} its initial value.

    An entry stores the cell's value XOR the initial value, so that cleared memory means the initial value.
    """
    for number, cell in enumerate(table.cells):
        initial = literal(cell.initial, ir.width_of(cell.place.type))
        yield template.format(body.expressions.scalar(cell.place).text, number, initial)


def _key_words(body: BodyWriter, layout: TableLayout) -> list[str]:
    """Return the words of the key for a packet's look-up, as C."""
    words: list[list[str]] = [[] for _ in range(layout.words)]
    for part in layout.parts:
        value = body.expressions.value(part.key.expr).text
        wide = part.width > 64
        cast = "p4_u128" if wide else "uint64_t"
        for n in range(part.offset // 64, (part.offset + part.width - 1) // 64 + 1):
            shift = part.offset - 64 * n
            text = f"({cast}){value}"
            if shift > 0:
                text = f"{text} << {shift}"
            elif shift < 0:
                text = f"{text} >> {-shift}"
            words[n].append(f"(uint64_t)({text})" if wide else (f"({text})" if shift else text))
    assert MAX_COMPUTED == 2 * 64
    return [" | ".join(word) or "0" for word in words]


def emit_ahead(unit: Translation, tables: Sequence[TableLayout], out: Writer) -> tuple[str, str]:
    """Write the C functions ``p4_waits`` and ``p4_ahead``, which prefetch entries; return both names.

    The names are "NULL" if no key is known before a packet's turn.
    """
    program = unit.program
    if unit.architecture.by_gress or not _only_parses(program):
        return "NULL", "NULL"
    written, numbers = Writer(), {layout.table.name: number for number, layout in enumerate(tables)}
    with written.indented():
        fetches = _Fetches(open_body(unit, written, (), leave="return;"), tables, numbers)
        fetches.of(program.ingress)
    if not fetches.tables:
        return "NULL", "NULL"
    with out.block("static uint32_t p4_waits(const struct p4_pipeline *s)"):
        large = (f"s->tables[{number}].large" for number in sorted(fetches.tables))
        out.line(f"return {' | '.join(large)};")
    out.line()
    parameters = "struct p4_pipeline *s, const uint8_t *frame, uint32_t length, uint16_t port"
    with out.block(f"static void p4_ahead({parameters})"):
        out.line(
            "struct p4_packet packet, *p = &packet;",
            "struct variables variables = {0}, *v = &variables;",
            "start_packet(p, frame, length);",
            "p->standard_metadata.ingress_port = port;",
        )
        out.when("run_parser(s, p, v, frame)", "return;")
        out.lines += written.lines
    out.line()
    return "p4_waits", "p4_ahead"


def _only_parses(program: ir.Program) -> bool:
    """Return True if a second run of the parser changes nothing."""
    bodies = (state.body for states in program.parsers.values() for state in states.values())
    return not any(isinstance(statement, ir.Extern) for body in bodies for statement in all_statements(body))


class _Fetches:
    """Writes code that fetches the data for a block's table look-ups into the cache."""

    def __init__(self, body: BodyWriter, layouts: Sequence[TableLayout], numbers: dict[str, int]) -> None:
        self._body = body
        self._layouts = layouts
        self._numbers = numbers
        self.tables: set[int] = set()
        """Numbers of the tables with fetched data."""

    def of(self, statements: Sequence[ir.Stmt]) -> None:
        """Write code that fetches the table entries which these statements look up.

        For a condition that is not known yet, the entries of both branches are fetched.
        """
        for statement in statements:
            if isinstance(statement, ir.Apply):
                self._fetch(self._layouts[self._numbers[statement.table]])
            elif isinstance(statement, ir.If) and self._known(statement.condition):
                self._branch(statement)
            else:
                for nested in nested_bodies(statement):
                    self.of(nested)

    def _branch(self, statement: ir.If) -> None:
        out = self._body.out
        with out.block(f"if ({self._body.expressions.text(statement.condition)})"):
            self.of(statement.then)
        if any(isinstance(inner, ir.Apply) for inner in all_statements(statement.otherwise)):
            with out.block("else"):
                self.of(statement.otherwise)

    def _fetch(self, layout: TableLayout) -> None:
        if layout.kind not in ("exact", "lpm") or not all(
            self._known(part.key.expr) for part in layout.parts
        ):
            return
        number, out = self._numbers[layout.table.name], self._body.out
        self.tables.add(number)
        with out.block(""):
            words = ", ".join(_key_words(self._body, layout))
            out.line(f"const uint64_t key[{layout.words}] = {{{words}}};")
            size = f"sizeof(struct {self._body.unit.table_names[layout.table.name]}_entry)"
            what = f"&s->tables[{number}], key, {layout.words}, {size}"
            if layout.kind == "exact":
                out.line(f"p4_fetch({what});")
            else:
                out.line(f"p4_fetch_longest({what}, {layout.prefix_top});")

    def _known(self, expr: ir.Expr) -> bool:
        """Return True if a value consists only of header fields, without values computed later."""
        for part in subexpressions(expr):
            match part:
                case ir.Index() | ir.Next() | ir.Last() | ir.LastIndex() | ir.Lookahead() | ir.Stack():
                    return False
                case ir.Var(name=name) if name not in ("hdr", "standard_metadata"):
                    return False
                case ir.Member(base=ir.Var(name="standard_metadata"), field=field) if field != "ingress_port":
                    return False
                case ir.Member(type=ir.Header()) if self._body.expressions.header(part).home.where:
                    return False
                case _:
                    pass
        return True
