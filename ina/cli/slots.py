"""``ina slots`` and ``ina remove``: list the jobs that a switch serves, and remove jobs from it."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from textwrap import shorten
from typing import Annotated, Any, NoReturn

import softswitch  # its parts are imported at their first use
from controller import (
    Admission,
    ControllerError,
    Fleet,
    NoProgram,
    Registration,
    SwitchSession,
    TreeAdmission,
)
from controller.errors import Refused
from controller.p4runtime_shim.cells import CellReader, Counter, CounterReading, Register, Value
from controller.switches import names
from controller.switches.model import COLUMNS, OUTCOMES
from ina.cli import options
from ina.cli.command import (
    FAILED,
    Declared,
    Failure,
    Json,
    Listing,
    Reply,
    Result,
    count,
    failing_at,
    rate,
    refuse,
    say,
)
from ina.cli.output import out

LOOK_S = 0.5
SHOWN_COMMAND = 40
"""Number of characters of a command that the table shows."""
NOBODY = Registration("")
"""A registration without values, for jobs that were admitted without one."""


def slots(
    *,
    running: options.RunningSwitch,
    watch: Annotated[
        bool,
        Declared(
            "--watch",
            help="Watch the leases until each has been renewed or has expired, and show which. Takes up to "
            "the longest lease.",
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        Declared(
            min=0,
            max=65535,
            help="Serve metrics of the switch's jobs for Prometheus, instead of a list, at "
            "http://127.0.0.1:PORT/metrics until interrupted; 0: any free port, which is printed.",
        ),
    ] = None,
    json: Json = False,
) -> Reply:
    """List the jobs that a running switch serves, with their slots, leases and holders.

    Lists the jobs of all users. The holder of a job, such as 'ina run', reports name, user, command, age and
    goodput whenever it renews the lease: after a quarter of the lease, but at least every 15 s. "since" is
    this machine's time minus the age. The lease is the time for which a job stays after its holder has died:
    --watch shows which leases are still renewed. A job without a lease stays until 'ina remove'.

    Examples:
        ina slots --switch grpc://127.0.0.1:9559

        ina slots --switch grpc://127.0.0.1:9559 --watch

        ina slots --switch grpc://127.0.0.1:9559 --metrics-port 9091

        ina slots --switch grpc://switch.lab:9559 --tls-ca ca.pem --json
    """
    if metrics_port is not None:
        refuse(watch or json, "--metrics-port lists nothing: leave --watch and --json out")
        _serve(running, metrics_port)
    with running.connect() as controller:
        address = controller.address
        try:
            found = _watched(controller) if watch else controller.jobs()
            described = {
                str(number): _description(job, controller, watch) for number, job in sorted(found.items())
            }
        except NoProgram:
            described = {}
    result = Result("slots", {"switch": running.switch}, {"jobs": len(described)}, described)
    if not described:
        return Reply(result, [f"the switch at {address} serves no jobs"])
    columns = ["job", "name", "workers", "region", "since", "age", "goodput", "priority", "lease", "user"]
    rows = [_row(*job) for job in described.items()]
    (mode,) = {str(job["mode"]) for job in described.values()}
    title = f"{mode} jobs of the switch at {address}"
    return Reply(result, [Listing(title, [*columns, "holder", "command"], rows)])


def _serve(running: options.RunningSwitch, port: int) -> NoReturn:
    """Serve metrics to Prometheus until interrupted. Raises Failure if the port cannot be used."""
    with running.connect() as controller:
        turn = threading.Lock()

        def text() -> str:
            with turn:
                return _metrics(controller)

        with contextlib.ExitStack() as stack:
            with failing_at(f"--metrics-port {port}", OSError, exit_code=FAILED):
                found = stack.enter_context(softswitch.serve_metrics(text, port))
            out.print(f"serving http://127.0.0.1:{found}/metrics", soft_wrap=True)
            while True:
                time.sleep(3600)


def _metrics(controller: SwitchSession) -> str:
    """Return the metrics of all jobs of a switch in Prometheus' text format.

    Raises MetricsUnknown if the switch does not answer.
    """
    try:
        jobs = controller.jobs() if controller.has_program() else {}
        packets = {job: controller.row_counters(of.counter_row) for job, of in jobs.items()}
    except NoProgram:
        jobs, packets = {}, {}
    except ControllerError as error:
        raise softswitch.MetricsUnknown(str(error)) from error
    described = {number: job.registration or NOBODY for number, job in jobs.items()}
    labels = {number: {"job": number, "name": of.name, "user": of.user} for number, of in described.items()}
    outcomes = {
        softswitch.metric_labels(**labels[number], outcome=outcome): count
        for number, counts in packets.items()
        for outcome, count in counts.items()
    }
    lines = softswitch.metric_family("ina_jobs", "Jobs that the switch serves.", {"": len(jobs)}, "gauge")
    lines += softswitch.metric_family("ina_job_packets_total", "Packets of the job by outcome.", outcomes)
    for name, meaning, value in _GAUGES:
        found = {
            softswitch.metric_labels(**labels[number]): value(job, described[number])
            for number, job in jobs.items()
        }
        known = {label: number for label, number in found.items() if number is not None}
        lines += softswitch.metric_family(f"ina_job_{name}", meaning, known, "gauge")
    return "\n".join(lines) + "\n"


_GAUGES: tuple[tuple[str, str, Callable[[Admission, Registration], float | None]], ...] = (
    ("slots", "Slots of the job.", lambda job, of: job.region.size),
    ("workers", "Workers of the job at this switch.", lambda job, of: len(job.members)),
    ("age_seconds", "Age of the job at its last renewal.", lambda job, of: of.age_s),
    ("renewals", "Renewals of the job's registration.", lambda job, of: of.renewals),
    (
        "goodput_bits_per_second",
        "Goodput of a worker in allreduces, at the last renewal.",
        lambda job, of: of.goodput_bps,
    ),
)
"""Name, meaning and value of each number of a job, given its admission and its registration."""


def _watched(controller: SwitchSession) -> Mapping[int, Admission]:
    """Wait until each lease has been renewed or has expired, and return the switch's jobs by number."""
    jobs = controller.jobs()
    if (longest_s := controller.leases.lease_wait_s()) is not None:
        say(f"watching the leases for up to {longest_s:.0f} s")
    while (left_s := controller.leases.lease_wait_s()) is not None:
        time.sleep(min(LOOK_S, left_s))
        jobs = controller.jobs()
    return jobs


def _description(job: Admission, controller: SwitchSession, watched: bool) -> dict[str, object]:
    of = job.registration or NOBODY
    leases = controller.leases
    age_s = of.age_s
    expired = leases.has_expired(job)
    return {
        "mode": controller.info().mode,
        "workers": sum(member.rank is not None for member in job.members),
        "first_slot": job.region.offset,
        "slots": job.region.size,
        "name": of.name,
        "user": of.user,
        "command": of.command,
        "priority": of.priority,
        "since": None if age_s is None or expired else _since(age_s),  # the last renewal's time is unknown
        "age_s": age_s,
        "goodput_bps": of.goodput_bps,
        "lease_s": None if of.lease_s in (None, math.inf) else of.lease_s,
        "lease": _lease(job, expired=expired, renewed=leases.was_renewed(job)),
        "renewals": of.renewals,
        "holder": of.holder,
    }


def _since(age_s: float) -> str | None:
    """Return the date and time `age_s` seconds ago, in ISO format; None if that is before the year 1."""
    try:
        return (datetime.now().astimezone() - timedelta(seconds=age_s)).isoformat(timespec="seconds")
    except OverflowError:
        return None


def _lease(job: Admission, *, expired: bool, renewed: bool) -> str:
    """Return the state of a job's lease as a text, such as "renewed" or "expired"."""
    if job.registration is None or job.registration.lease_s is None:
        return "none"
    if job.registration.lease_s == math.inf:
        return "of another version"
    if expired:
        return "expired"
    return "renewed" if renewed else "not watched"


def _row(number: str, job: Mapping[str, Any]) -> list[str]:
    first, slots, age_s, lease_s = (job[name] for name in ("first_slot", "slots", "age_s", "lease_s"))
    length = "" if lease_s is None else f"{lease_s:.0f} s"
    known = "" if job["lease"] == "not watched" else str(job["lease"])
    return [
        number,
        _shown(job["name"]),
        str(job["workers"]),
        f"{first} to {first + slots - 1}" if slots else "none",
        str(job["since"] or "unknown")[:19].replace("T", " "),
        "unknown" if age_s is None else f"{age_s:.0f} s",
        rate(job["goodput_bps"]) if job["goodput_bps"] else "",
        "" if job["priority"] is None else str(job["priority"]),
        ", ".join(filter(None, (length, known))),
        _shown(job["user"]),
        _shown(job["holder"]),
        _shown(shorten(str(job["command"]), SHOWN_COMMAND, placeholder="…")),
    ]


def _shown(text: object) -> str:
    """Return another user's text; quoted, with escapes, if it has characters that could move the cursor."""
    return str(text) if str(text).isprintable() else ascii(str(text))


def remove(
    *,
    jobs: Annotated[
        list[int],
        Declared(argument=True, metavar="JOB...", help="Remove these jobs: numbers as in 'ina slots'."),
    ],
    running: options.RunningSwitch,
) -> Reply:
    """Remove jobs from a running switch.

    The switch drops and counts further packets of these jobs. A job on several switches is removed from this
    switch alone. Removes nothing if one of the numbers is unknown.

    Examples:
        ina remove --switch grpc://127.0.0.1:9559 40961

        ina remove --switch grpc://switch.lab:9559 --tls-ca ca.pem 40961 17 --json
    """
    wanted = list(dict.fromkeys(jobs))
    with running.connect() as controller:
        present = controller.jobs()
        fleet = Fleet({running.switch: controller})
        if unknown := sorted(set(wanted) - present.keys()):
            known = ", ".join(map(str, sorted(present))) or "none"
            numbers = ", ".join(map(str, unknown))
            raise Failure(f"the switch at {controller.address} has no job {numbers}; its jobs: {known}")
        for job in wanted:
            fleet.remove(TreeAdmission({running.switch: present[job]}))
    result = Result("remove", {"switch": running.switch, "jobs": wanted}, {"removed": len(wanted)})
    return Reply(result, [f"removed job {job}" for job in wanted])


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
        refuse(max(found) >= size, f"--index {self.index}: want cells of {name}, 0 to {size - 1}")
        return found

    def check_list(self) -> None:
        """Raise Failure if ``--index`` or ``--all`` is given without a name."""
        option = "--all" if self.index is None else f"--index {self.index}"
        refuse(
            self.index is not None or self.everything,
            f"{option} needs a NAME; leave the option out to list all names",
        )

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
        refuse(
            asked.index is not None and counter.table is not None,
            f"--index {asked.index}: {counter.name} has no numbered cells; it counts for the entries of"
            f" table {counter.table}",
        )
        found = cells.counts(counter, asked.indices(counter.name, counter.size))
    shown = [each for each in found if asked.everything or each.packets or each.bytes]
    rows = [
        [each.at, *_meaning(counter, each).values(), *map(count, _counts(each).values())] for each in shown
    ]
    title = f"{counter.name}, by entry of {counter.table}" if counter.table else counter.name
    meaning = ["row", "outcome"] if counter.name == names.OUTCOMES else []
    columns = ["packets"] * counter.counts_packets + ["bytes"] * counter.counts_bytes
    table = Listing(
        title, ["entry" if counter.table else "cell", *meaning, *columns], rows, left=("outcome",)
    )
    of = {"counter": counter.name, "table": counter.table}
    numbers = {str(each.at): {**_counts(each), **_meaning(counter, each)} for each in shown}
    return asked.answer("counters", of, {"counts": numbers}, table, len(found))


def _list_counters(cells: CellReader, switch: str) -> Reply:
    described, rows = {}, []
    for counter in cells.counters.values():
        found = [_counts(each) for each in cells.counts(counter)]
        counted = {"packets": counter.counts_packets, "bytes": counter.counts_bytes}
        totals = {
            unit: sum(each[unit] for each in found) for unit, is_counted in counted.items() if is_counted
        }
        described[counter.name] = {"table": counter.table, "cells": len(found), **totals}
        entries = "entry" if len(found) == 1 else "entries"
        rows.append(
            [
                counter.name,
                f"{count(len(found))} {f'{entries} of {counter.table}' if counter.table else 'cells'}",
                *(count(totals[unit]) if unit in totals else "-" for unit in counted),
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
        if error.code != "UNIMPLEMENTED":
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

    `ina registers` lists registers with the same three values, such as one for each lane, in one row.
    """
    return re.sub(r"\d+$", "", register.name), register.size, register.bits


def _is_set(value: Value) -> bool:
    return any(map(_is_set, value)) if isinstance(value, list) else value not in (0, False, "", "NoError")


def _texts(value: Value) -> tuple[str, str]:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), hex(value)
    return str(value), ""
