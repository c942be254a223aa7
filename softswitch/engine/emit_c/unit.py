"""Layouts and names that all parts of one generated program share."""

from __future__ import annotations

from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.ir.walk import all_statements
from softswitch.compiler.source import NOWHERE
from softswitch.engine.emit_c.layout import HeaderLayout, Homes, header_types, lay_out_header
from softswitch.engine.emit_c.registers import Registers
from softswitch.engine.emit_c.text import Names


@dataclass(frozen=True, slots=True)
class Unit:
    """One program being translated."""

    program: ir.Program
    headers: dict[ir.Header, HeaderLayout]
    homes: Homes
    registers: Registers
    action_names: dict[str, str]  # P4 name to C name, without prefix
    table_names: dict[str, str]
    counter_names: dict[str, str]
    meter_names: dict[str, str]
    leaving_actions: frozenset[str]  # those that may exit the block
    leaving_tables: frozenset[str]
    loop_names: Names = field(default_factory=Names)

    def error(self, name: str) -> int:
        """Return the number of a parser error."""
        members = self.program.errors.members
        if name not in members:
            raise Unsupported(f"the program does not declare error.{name}: include core.p4", NOWHERE)
        return members.index(name)


def make_unit(program: ir.Program) -> Unit:
    """Lay out `program` and name its parts. Raises Unsupported."""
    header_names = Names()
    headers = {
        header: lay_out_header(header, header_names.unique(header.name), NOWHERE, dense=not program.tofino)
        for header in header_types(program)
    }
    actions, tables, counters, meters = Names(), Names(), Names(), Names()
    leaving = _leaving_actions(program)
    return Unit(
        program=program,
        headers=headers,
        homes=Homes(program, headers),
        registers=Registers(program),
        action_names={name: actions.unique(name) for name in program.actions},
        table_names={name: tables.unique(name) for name in program.tables},
        counter_names={name: counters.unique(name) for name in program.counters},
        meter_names={name: meters.unique(name) for name in program.meters},
        leaving_actions=leaving,
        leaving_tables=frozenset(
            name
            for name, table in program.tables.items()
            if leaving & {table.default.action, *(ref.action for ref in table.actions)}
        ),
    )


def _leaving_actions(program: ir.Program) -> frozenset[str]:
    """Return the actions that may run an exit statement, themselves or through calls."""
    leaving: set[str] = set()
    while True:
        more = {
            name
            for name, action in program.actions.items()
            if name not in leaving
            and any(_leaves(statement, leaving) for statement in all_statements(action.body))
        }
        if not more:
            return frozenset(leaving)
        leaving |= more


def _leaves(statement: ir.Stmt, leaving: set[str]) -> bool:
    match statement:
        case ir.Exit():
            return True
        case ir.Call(action=action):
            return action in leaving
        case _:
            return False
