"""``ina counters``: the counters of a running program, by name."""

from __future__ import annotations

from collections.abc import Sequence

from controller.p4runtime_shim.cells import Cells, Counted, Counter
from controller.switches import names
from controller.switches.model import COLUMNS, OUTCOMES
from ina.cli import cell_options, options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import out, table
from ina.cli.plain import Result, count

EPILOG = """Examples:

  ina counters --switch grpc://127.0.0.1:9559

  ina counters --switch grpc://127.0.0.1:9559 outcomes

  ina counters --switch grpc://127.0.0.1:9559 InaIngress.outcomes --index 32-63 --all --json
"""


def counters(
    *,
    name: cell_options.Name = None,
    index: cell_options.Index = None,
    everything: cell_options.Everything = False,
    running: options.RunningSwitch,
    json: options.Json = False,
) -> None:
    """Read the counters of the program that a running switch has.

    Without a name, lists all counters with their totals. A direct counter counts for each entry of its
    table; other counters have numbered cells. Shows what is not zero, unless --all is given. Works with any
    P4Runtime switch, BMv2 included, and changes nothing.
    """
    with cell_options.cells(running) as cells:
        if name is None:
            cell_options.check_no_cells(index, everything)
            _list(cells, running.switch, json=json)
            return
        counter = cells.counter(name)
        if index is not None and counter.table is not None:
            raise Failure(
                f"--index {index}: {counter.name} has no numbered cells; it counts for the entries of table"
                f" {counter.table}",
                exit_code=USAGE,
            )
        found = cells.counts(counter, cell_options.indices(index, counter.name, counter.size))
    shown = [each for each in found if everything or each.packets or each.bytes]
    zeros = len(found) - len(shown)
    if json:
        setup = {"switch": running.switch, "counter": counter.name, "table": counter.table}
        rows = {str(each.at): {**_counts(each), **_meaning(counter, each)} for each in shown}
        metrics = {"cells": len(found), "zeros_left_out": zeros, "counts": rows}
        Result("counters", setup, metrics).print_json()
        return
    title = f"{counter.name}, by entry of {counter.table}" if counter.table else counter.name
    columns = [*(["packets"] if counter.counts_packets else []), *(["bytes"] if counter.counts_bytes else [])]
    rows_of = [
        [str(each.at), *map(str, _meaning(counter, each).values()), *map(count, _counts(each).values())]
        for each in shown
    ]
    meant = ["row", "outcome"] if counter.name == names.OUTCOMES else []
    table(title, ["entry" if counter.table else "cell", *meant, *columns], rows_of, left=("outcome",))
    if zeros:
        out.print(f"{count(zeros)} of {count(len(found))} are zero and left out; --all shows them")


def _list(cells: Cells, switch: str, *, json: bool) -> None:
    read = {counter: cells.counts(counter) for counter in cells.counters.values()}
    if json:
        described = {counter.name: _described(counter, found) for counter, found in read.items()}
        Result("counters", {"switch": switch}, {"counters": described}).print_json()
        return
    rows = []
    for counter, found in read.items():
        packets, total = (sum(each or 0 for each in of) for of in _columns(found))
        entries = "entry" if len(found) == 1 else "entries"
        of = f"{entries} of {counter.table}" if counter.table else "cells"
        rows.append(
            [
                counter.name,
                f"{count(len(found))} {of}",
                count(packets) if counter.counts_packets else "-",
                count(total) if counter.counts_bytes else "-",
            ]
        )
    table(f"counters of the switch at {cells.address}", ["counter", "counts for", "packets", "bytes"], rows)


def _meaning(counter: Counter, each: Counted) -> dict[str, int | str]:
    """Return the row of a job and the outcome for which a cell counts; {}: it is of another counter."""
    if counter.name != names.OUTCOMES or not isinstance(each.at, int):
        return {}
    row, column = divmod(each.at, COLUMNS)
    return {"row": row, "outcome": {number: name for name, number in OUTCOMES.items()}[column]}


def _columns(found: Sequence[Counted]) -> tuple[list[int | None], list[int | None]]:
    return [each.packets for each in found], [each.bytes for each in found]


def _described(counter: Counter, found: Sequence[Counted]) -> dict[str, object]:
    packets, total = (sum(each or 0 for each in of) for of in _columns(found))
    described: dict[str, object] = {"table": counter.table, "cells": len(found)}
    described |= {"packets": packets} if counter.counts_packets else {}
    return described | ({"bytes": total} if counter.counts_bytes else {})


def _counts(each: Counted) -> dict[str, int]:
    counts = {"packets": each.packets, "bytes": each.bytes}
    return {key: number for key, number in counts.items() if number is not None}
