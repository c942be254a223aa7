"""The C back end: an `ir.Program` to one C file that implements ``runtime/pipeline.h``.

====================  ===================================================================
module                what it writes
====================  ===================================================================
`layout`              where headers, metadata and variables live
`unit`                what all parts share; registers, interleaved by slot
`packet`              the state of a packet
`expressions`         expressions
`statements`          statements; `externs`: calls of externs
`roll`, `lanes`       loops for what the program repeats lane by lane, as functions apart
`wire`                headers from and to bytes, many fields at a time
`parser`              parser and deparser
`alike_tables`        tables that decide the same, decided once
`functions`           actions and blocks
`tables`              tables: entries, lookup, decision code
`ahead`               what is fetched for packets whose turn is yet to come
`tofino`              what the engine calls of programs for Tofino
`slots`               by what packets are divided among threads
`entry`               the state of the pipeline, and what the engine calls
====================  ===================================================================
"""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.slots import find_slots
from softswitch.compiler.source import NOWHERE
from softswitch.engine.emit_c.alike_tables import with_joint_decisions
from softswitch.engine.emit_c.entry import declare_state, emit_entry_points
from softswitch.engine.emit_c.functions import emit_actions, emit_block, find_locals
from softswitch.engine.emit_c.packet import (
    declare_header,
    declare_packet,
    declare_varbits,
    declare_variables,
    emit_bring,
    emit_packet_functions,
    emit_raw,
)
from softswitch.engine.emit_c.parser import emit_deparser, emit_parser
from softswitch.engine.emit_c.slots import Division, emit_slots
from softswitch.engine.emit_c.table_layout import lay_out_table
from softswitch.engine.emit_c.tables import declare_table, emit_apply
from softswitch.engine.emit_c.text import Writer
from softswitch.engine.emit_c.tofino import declare_sizes, emit_tofino
from softswitch.engine.emit_c.unit import make_unit
from softswitch.engine.emit_c.wire import emit_header_functions

OPTIONS = """\
/* Paths stay apart and are chosen by branches, which processors predict: that takes fewer instructions than
   to compute what several of them need ahead, or both sides of a condition. */
#ifndef __clang__
#pragma GCC optimize("no-code-hoisting", "no-if-conversion")
#endif
/* Nor are two counts put into a vector in order to raise both at once. */
#define P4_APART(place) __asm__("" : "+m"(place))
"""
"""What makes programs for v1model faster and those for Tofino slower, whose packets are C locals."""


def emit_c(program: ir.Program) -> str:
    """Return the C text of `program`. Raises Unsupported for what this back end cannot do."""
    try:
        return _emit(with_joint_decisions(program), find_slots(program))
    except RecursionError:
        raise Unsupported(f"expressions or statements of {program.name} nested too deeply", NOWHERE) from None


def _emit(program: ir.Program, division: Division) -> str:
    unit = make_unit(program)
    tables = [lay_out_table(table) for table in program.tables.values()]
    out = Writer()
    out.line(f"/* Generated from the P4 program {program.name.replace('*/', '* /')}. */")
    for line in () if program.tofino else OPTIONS.splitlines():
        out.line(line)
    for header in ("pipeline.h", "prelude.h", "tables.h"):
        out.line(f'#include "{header}"')
    out.line()
    declare_varbits(program, out)
    for layout in unit.headers.values():
        declare_header(layout, out)
        emit_header_functions(layout, out)
    if program.tofino:
        declare_sizes(program, out)
    declare_packet(unit, out)
    locals_ = find_locals(program)
    declare_variables(unit, locals_.nowhere_else(program), out)
    unit.registers.declare(out)
    for table in tables:
        declare_table(unit, table, out)
    declare_state(unit, tables, out)
    for home in unit.homes.storage.large_homes:
        emit_bring(unit, home, out)
    for home in unit.homes.storage.raw_homes:
        emit_raw(home, out)
    emit_actions(unit, locals_, out)
    for number, table in enumerate(tables):
        emit_apply(unit, table, number, out)
    for parser in program.parsers:
        emit_parser(unit, locals_, parser, out)
    for block in ("ingress", "egress") if program.tofino else ("verify", "ingress", "egress", "compute"):
        emit_block(unit, locals_, block, out)
    for deparser in ("ingress_deparser", "deparser") if program.tofino else ("deparser",):
        emit_deparser(unit, locals_, deparser, out)
    if program.tofino:
        emit_tofino(out)
    else:
        emit_packet_functions(unit, out)
    emit_entry_points(unit, tables, emit_slots(unit, division, tables, out), out)
    out.line('#include "control.h"')
    return out.text()
