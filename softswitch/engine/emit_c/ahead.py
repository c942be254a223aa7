"""Looking ahead: what a packet's look-ups will read is fetched while other packets are in work.

A look-up in a large table waits for memory, longer than all else that a packet takes. Most keys are fields of
the packet as it came in, known before the packet's turn: parsing finds them, and of the parser the C compiler
keeps what leads to a key. A key that the program changes first is found wrong, and the entry is not fetched;
no result depends on that.
"""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import all_statements, nested_bodies, subexpressions
from softswitch.engine.emit_c.functions import open_body
from softswitch.engine.emit_c.statements import Body
from softswitch.engine.emit_c.table_layout import TableLayout
from softswitch.engine.emit_c.tables import key_words
from softswitch.engine.emit_c.text import Writer
from softswitch.engine.emit_c.unit import Unit


def emit_ahead(unit: Unit, tables: Sequence[TableLayout], out: Writer) -> tuple[str, str]:
    """Write ``p4_waits`` and ``p4_ahead``; return their names, NULL where no key is known in advance."""
    program = unit.program
    if program.tofino or not _only_parses(program):
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
        out.line("struct p4_packet packet, *p = &packet;")
        out.line("struct variables variables = {0}, *v = &variables;")
        out.line("start_packet(p, frame, length);")
        out.line("p->standard_metadata.ingress_port = port;")
        out.line("if (run_parser(s, p, v, frame))")
        with out.indented():
            out.line("return;")
        out.lines += written.lines
    out.line()
    return "p4_waits", "p4_ahead"


def _only_parses(program: ir.Program) -> bool:
    """Return whether to run the parser once more changes nothing."""
    bodies = (state.body for states in program.parsers.values() for state in states.values())
    return not any(isinstance(statement, ir.Extern) for body in bodies for statement in all_statements(body))


class _Fetches:
    """Writes what a block's look-ups fetch."""

    def __init__(self, body: Body, layouts: Sequence[TableLayout], numbers: dict[str, int]) -> None:
        self._body = body
        self._layouts = layouts
        self._numbers = numbers
        self.tables: set[int] = set()
        """Numbers of the tables of which something is fetched."""

    def of(self, statements: Sequence[ir.Stmt]) -> None:
        """Write what some statements fetch: all branches of conditions that are not known yet."""
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
            words = ", ".join(key_words(self._body, layout))
            out.line(f"const uint64_t key[{layout.words}] = {{{words}}};")
            size = f"sizeof(struct {self._body.unit.table_names[layout.table.name]}_entry)"
            what = f"&s->tables[{number}], key, {layout.words}, {size}"
            if layout.kind == "exact":
                out.line(f"p4_fetch({what});")
            else:
                out.line(f"p4_fetch_longest({what}, {layout.prefix_top});")

    def _known(self, expr: ir.Expr) -> bool:
        """Return whether a value is of fields of headers, and of nothing that is made later."""
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
