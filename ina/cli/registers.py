"""``ina registers``: the registers of a running program, by name."""

from __future__ import annotations

import itertools
import re

from controller.errors import Refused
from controller.p4runtime_shim.cells import CellReader, Register, Value
from ina.cli import cell_options, options
from ina.cli.errors import Failure
from ina.cli.output import out, table
from ina.cli.plain import Result, count

EPILOG = """Examples:

  ina registers --switch grpc://127.0.0.1:9559

  ina registers --switch grpc://127.0.0.1:9559 slot_psn --index 0-63

  ina registers --switch grpc://127.0.0.1:9559 InaIngress.aggregator.slot_bitmap --json
"""

_UNIMPLEMENTED = "UNIMPLEMENTED"


def registers(
    *,
    name: cell_options.Name = None,
    index: cell_options.Index = None,
    everything: cell_options.Everything = False,
    running: options.RunningSwitch,
    json: options.Json = False,
) -> None:
    """Read the registers of the program that a running switch has.

    Without a name, lists all registers. Shows the cells that are not zero, unless --all is given. A
    switch may refuse to read registers over P4Runtime: the embedded switch serves them, BMv2 does not. Cells
    that are read while packets pass may be from different moments.
    """
    with cell_options.cells(running) as cells:
        if name is None:
            cell_options.check_no_cells(index, everything)
            _list(cells, running.switch, json=json)
            return
        register = cells.register(name)
        found = _read(cells, register, cell_options.indices(index, register.name, register.size))
    shown = [each for each in found if everything or _is_set(each[1])]
    zeros = len(found) - len(shown)
    if json:
        setup = {"switch": running.switch, "register": register.name, "bits": register.bits}
        values = {str(at): value for at, value in shown}
        metrics = {"cells": len(found), "zeros_left_out": zeros, "values": values}
        Result("registers", setup, metrics).print_json()
        return
    rows = [[str(at), *_texts(value)] for at, value in shown]
    table(register.name, ["cell", "value", "hexadecimal"], rows)
    if zeros:
        out.print(f"{count(zeros)} of {count(len(found))} are zero and left out; --all shows them")


def _read(cells: CellReader, register: Register, wanted: tuple[int, ...]) -> list[tuple[int, Value]]:
    try:
        return cells.values(register, wanted)
    except Refused as error:
        if error.code != _UNIMPLEMENTED:
            raise
        raise Failure(
            f"the switch at {cells.address} does not let registers be read ({error}): P4Runtime leaves that"
            " to the switch, and BMv2 does not support it; use a counter in the program instead, and read it"
            " with 'ina counters'"
        ) from error


def _list(cells: CellReader, switch: str, *, json: bool) -> None:
    known = cells.registers.values()
    if json:
        described = {each.name: {"cells": each.size, "bits": each.bits} for each in known}
        Result("registers", {"switch": switch}, {"registers": described}).print_json()
        return
    rows = []
    for (stem, size, bits), alike in itertools.groupby(known, key=_kind):
        names = [each.name for each in alike]
        name = names[0] if len(names) == 1 else f"{names[0]} … {names[-1].removeprefix(stem)}"
        rows.append([name, count(size), str(bits) if bits else "several members"])
    table(f"registers of the switch at {cells.address}", ["register", "cells", "bits"], rows)


def _kind(register: Register) -> tuple[str, int, int]:
    """Return a register's name without the number at its end, and its sizes: those of lanes are one row."""
    return re.sub(r"\d+$", "", register.name), register.size, register.bits


def _is_set(value: Value) -> bool:
    return any(map(_is_set, value)) if isinstance(value, list) else value not in (0, False, "", "NoError")


def _texts(value: Value) -> tuple[str, str]:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), hex(value)
    return str(value), ""
