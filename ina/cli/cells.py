"""``ina counters`` and ``ina registers``: read counters and registers of a running program by name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from controller.errors import Refused
from controller.p4runtime_shim.cells import CellReader, Counter, CounterReading, Register, Value
from controller.switches import names
from controller.switches.model import COLUMNS, OUTCOMES
from ina.cli import options
from ina.cli.declared import Declared
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import Listing, Reply, Result, count

_UNIMPLEMENTED = "UNIMPLEMENTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedCells:
    """Options of 'ina counters' and 'ina registers': a running switch, and the cells to read."""

    name: Annotated[
        str | None,
        Declared(
            argument=True,
            metavar="[NAME]",
            help="Read the counter or register with this name in the P4 program; the last parts of the name "
            "suffice. Default: list all.",
            show_default=False,
        ),
    ] = None
    index: Annotated[
        str | None, Declared(metavar="A-B,C", help="Read only cells with these numbers. Default: all cells.")
    ] = None
    everything: Annotated[bool, Declared("--all", help="Show zero values, too.")] = False
    running: options.RunningSwitch

    def open(self) -> CellReader:
        """Connect to the switch, to read its cells. Raises Failure for wrong options; ControllerError."""
        from controller.p4runtime_shim.client import P4RuntimeClient  # gRPC takes its time to load

        address = options.parse_switch("--switch", self.running.switch)
        tls = self.running.tls(address)
        return CellReader(P4RuntimeClient(address, device_id=self.running.device_id, tls=tls))

    def indices(self, name: str, size: int) -> tuple[int, ...]:
        """Return the cell numbers that ``--index`` selects; empty for all.

        Args:
            name: Name of the counter or register, for messages.
            size: Number of its cells.

        Raises Failure for numbers beyond `size`.
        """
        if self.index is None:
            return ()
        found = options.parse_numbers("--index", self.index)
        if max(found) >= size:
            raise Failure(f"--index {self.index}: want cells of {name}, 0 to {size - 1}", exit_code=USAGE)
        return found

    def check_list(self) -> None:
        """Raise Failure if ``--index`` or ``--all`` is given without a name."""
        if self.index is not None or self.everything:
            option = "--all" if self.index is None else f"--index {self.index}"
            raise Failure(f"{option} needs a NAME; leave the option out to list all names", exit_code=USAGE)

    def answer(
        self, command: str, of: Mapping[str, object], cells: Mapping[str, object], table: Listing, read: int
    ) -> Reply:
        """Return the reply about one counter or register.

        Args:
            command: Name of the command.
            of: Facts about the counter or register, such as its name.
            cells: One entry: "counts" or "values", and a dictionary of the shown cells by number.
            table: The shown cells as a table for people.
            read: Number of cells that were read; cells that are not shown are zero.
        """
        zeros = read - len(table.rows)
        result = Result(
            command,
            {"switch": self.running.switch, **of},
            {"cells": read, "zeros_left_out": zeros, **cells},
        )
        more = f"{count(zeros)} of {count(read)} cells are zero and left out; --all shows them"
        return Reply(result, [table, *[more] * bool(zeros)])


def counters(asked: WantedCells) -> Reply:
    """Read the counters of the program that a running switch has.

    Without a name, lists all counters with their totals. A direct counter counts for each entry of its
    table; other counters have numbered cells. Shows values other than zero, or all with --all. Works with any
    P4Runtime switch, BMv2 included, and changes nothing.

    Examples:
        ina counters --switch grpc://127.0.0.1:9559

        ina counters --switch grpc://127.0.0.1:9559 outcomes

        ina counters --switch grpc://127.0.0.1:9559 InaIngress.outcomes --index 32-63 --all --json
    """
    with asked.open() as cells:
        if asked.name is None:
            asked.check_list()
            return _list_counters(cells, asked.running.switch)
        counter = cells.counter(asked.name)
        if asked.index is not None and counter.table is not None:
            raise Failure(
                f"--index {asked.index}: {counter.name} has no numbered cells; it counts for the entries of"
                f" table {counter.table}",
                exit_code=USAGE,
            )
        found = cells.counts(counter, asked.indices(counter.name, counter.size))
    shown = [each for each in found if asked.everything or each.packets or each.bytes]
    rows = [
        [each.at, *_meaning(counter, each).values(), *map(count, _counts(each).values())] for each in shown
    ]
    title = f"{counter.name}, by entry of {counter.table}" if counter.table else counter.name
    meant = ["row", "outcome"] if counter.name == names.OUTCOMES else []
    columns = ["packets"] * counter.counts_packets + ["bytes"] * counter.counts_bytes
    table = Listing(title, ["entry" if counter.table else "cell", *meant, *columns], rows, left=("outcome",))
    of = {"counter": counter.name, "table": counter.table}
    numbers = {str(each.at): {**_counts(each), **_meaning(counter, each)} for each in shown}
    return asked.answer("counters", of, {"counts": numbers}, table, len(found))


def _list_counters(cells: CellReader, switch: str) -> Reply:
    described, rows = {}, []
    for counter in cells.counters.values():
        found = cells.counts(counter)
        packets, total = sum(each.packets or 0 for each in found), sum(each.bytes or 0 for each in found)
        described[counter.name] = {"table": counter.table, "cells": len(found)}
        described[counter.name] |= {"packets": packets} if counter.counts_packets else {}
        described[counter.name] |= {"bytes": total} if counter.counts_bytes else {}
        entries = "entry" if len(found) == 1 else "entries"
        rows.append(
            [
                counter.name,
                f"{count(len(found))} {f'{entries} of {counter.table}' if counter.table else 'cells'}",
                count(packets) if counter.counts_packets else "-",
                count(total) if counter.counts_bytes else "-",
            ]
        )
    title = f"counters of the switch at {cells.address}"
    return Reply(
        Result("counters", {"switch": switch}, {"counters": described}),
        [Listing(title, ["counter", "counts for", "packets", "bytes"], rows)],
    )


def _meaning(counter: Counter, each: CounterReading) -> dict[str, int | str]:
    """Return the job's row and the outcome of packets that a cell of the counter `OUTCOMES` counts.

    Return {} for other counters.
    """
    if counter.name != names.OUTCOMES or not isinstance(each.at, int):
        return {}
    row, column = divmod(each.at, COLUMNS)
    return {"row": row, "outcome": {number: name for name, number in OUTCOMES.items()}[column]}


def _counts(each: CounterReading) -> dict[str, int]:
    counts = {"packets": each.packets, "bytes": each.bytes}
    return {key: number for key, number in counts.items() if number is not None}


def registers(asked: WantedCells) -> Reply:
    """Read the registers of the program that a running switch has.

    Without a name, lists all registers. Shows the cells that are not zero, unless --all is given. A
    switch may refuse to read registers over P4Runtime: the embedded switch serves them, BMv2 does not. Cells
    that are read while packets pass may be from different moments.

    Examples:
        ina registers --switch grpc://127.0.0.1:9559

        ina registers --switch grpc://127.0.0.1:9559 slot_psn --index 0-63

        ina registers --switch grpc://127.0.0.1:9559 InaIngress.aggregator.slot_bitmap --json
    """
    with asked.open() as cells:
        if asked.name is None:
            asked.check_list()
            return _list_registers(cells, asked.running.switch)
        register = cells.register(asked.name)
        found = _read(cells, register, asked.indices(register.name, register.size))
    shown = [each for each in found if asked.everything or _is_set(each[1])]
    rows = [[at, *_texts(value)] for at, value in shown]
    return asked.answer(
        "registers",
        {"register": register.name, "bits": register.bits},
        {"values": {str(at): value for at, value in shown}},
        Listing(register.name, ["cell", "value", "hexadecimal"], rows),
        len(found),
    )


def _read(cells: CellReader, register: Register, wanted: tuple[int, ...]) -> list[tuple[int, Value]]:
    try:
        return cells.values(register, wanted)
    except Refused as error:
        if error.code != _UNIMPLEMENTED:
            raise
        raise Failure(
            f"the switch at {cells.address} cannot read registers over P4Runtime ({error}): P4Runtime does"
            " not require it, and BMv2 does not support it; use a counter in the program instead, and read"
            " it with 'ina counters'"
        ) from error


def _list_registers(cells: CellReader, switch: str) -> Reply:
    known = cells.registers.values()
    rows = []
    for (stem, size, bits), alike in itertools.groupby(known, key=_kind):
        of_kind = [each.name for each in alike]
        last = of_kind[-1].removeprefix(stem)
        name = of_kind[0] if len(of_kind) == 1 else f"{of_kind[0]} … {last}"
        rows.append([name, count(size), bits or "several members"])
    described = {each.name: {"cells": each.size, "bits": each.bits} for each in known}
    return Reply(
        Result("registers", {"switch": switch}, {"registers": described}),
        [Listing(f"registers of the switch at {cells.address}", ["register", "cells", "bits"], rows)],
    )


def _kind(register: Register) -> tuple[str, int, int]:
    """Return a register's name without the number at its end, its number of cells, and the bits per cell.

    `ina switch cells` lists registers with the same three values, such as one for each lane, in one row.
    """
    return re.sub(r"\d+$", "", register.name), register.size, register.bits


def _is_set(value: Value) -> bool:
    return any(map(_is_set, value)) if isinstance(value, list) else value not in (0, False, "", "NoError")


def _texts(value: Value) -> tuple[str, str]:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), hex(value)
    return str(value), ""
