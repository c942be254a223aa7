"""The switch programs of ``p4src``, how to build them for a target, and what a program offers to jobs.

The offers are read from the program's P4Info: programs are not recognised by their names.

The entries that a controller writes name tables, match fields, actions and parameters. So sample entries are
compared with the tables and actions of the program, which may have further tables and actions. Registers,
which no controller reads or writes, show what slots can do:

================  =======================================================  =================================
feature           P4Info has                                               meaning
================  =======================================================  =================================
slots             registers ``slot_psn`` and ``lane_0``, ``lane_1``, …     number of slots, values per packet
shared            ``slot_job``, or the table or the counter of moves       jobs share slots, and need a
                                                                           fallback server
preemption        ``slot_priority``                                        a packet can take another's slot
salted            ``slot_salt``                                            a packet that collided is hashed
                                                                           anew, and has no priority (ATP)
shards            the table ``lane_work``                                  contributions may have no lanes, as
                                                                           in a broadcast
================  =======================================================  =================================
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import p4src.programs
from controller.errors import ProgramMismatch
from controller.switches import names
from controller.switches.jobs import change_row, job_row, supporting_rows
from controller.switches.model import COLUMNS, Admission, Feature, Member, RegionChange, SwitchInfo, Uplink
from controller.switches.target import Entry, Lpm, Match, ProgramInfo, Range, TableEntry, TableInfo, Ternary
from controller.switches.tofino_rows import as_seen
from controller.vocabulary import Region
from p4src.messages import p4info_pb2
from p4src.messages.cookie import cookie_of
from p4src.programs import NoSuchProgram

P4C = ("p4c-bm2-ss", "p4c")
"""The compiler for BMv2, and the driver that calls it: either is enough."""


@dataclass(frozen=True, slots=True)
class ProgramBundle:
    """A compiled program for one kind of switch.

    `device_config` is the form that the target loads: the preprocessed source for the embedded switch, the
    JSON of p4c for BMv2.
    """

    name: str
    p4info: Any
    device_config: bytes

    @property
    def cookie(self) -> int:
        """The cookie that identifies the program to switches and controllers (`p4src.messages.cookie`)."""
        return cookie_of(self.p4info, self.device_config)

    @property
    def title(self) -> str:
        """The program's name in errors."""
        return f"the program {self.name}"

    def offers(self) -> SwitchInfo:
        """Return the capacity that the program offers jobs. Raises ProgramMismatch if it cannot aggregate."""
        return capabilities(objects(self.p4info), self.title)


def objects(p4info: Any) -> ProgramInfo:
    """Return the tables, actions, counters and registers of a P4Info, by name.

    This project's Tofino programs are described with the names that its v1model programs have (`as_seen`).
    """
    actions = {action.preamble.id: action for action in p4info.actions}
    found = ProgramInfo(
        architecture=p4info.pkg_info.arch,
        tables={
            table.preamble.name: TableInfo(
                table.size,
                {key.name: key.MatchType.Name(key.match_type).lower() for key in table.match_fields},
                frozenset(actions[ref.id].preamble.name for ref in table.action_refs),
            )
            for table in p4info.tables
        },
        counters={counter.preamble.name: counter.size for counter in p4info.counters},
        registers={register.preamble.name: register.size for register in p4info.registers},
        actions={
            action.preamble.name: {param.name: param.bitwidth for param in action.params}
            for action in p4info.actions
        },
    )
    return as_seen(found)


def source_of(program: str, lanes: int) -> tuple[Path, dict[str, str]]:
    """Return a program's source file and the preprocessor definitions that build it.

    `program` is the name of a program in p4src, or the path of a file that ends in ``.p4``. Raises
    ProgramMismatch if there is no such program, or none for this number of lanes; FileNotFoundError.
    """
    try:
        return p4src.programs.source_of(program, lanes)
    except NoSuchProgram as error:
        raise ProgramMismatch(str(error)) from error


def bmv2_bundle(program: str, *, lanes: int) -> ProgramBundle:
    """Compile a program, by name or file, for BMv2 with ``p4c-bm2-ss`` or ``p4c``.

    Raises ProgramMismatch if that fails.
    """
    source, defines = source_of(program, lanes)
    if p4c_on_path() is None:
        raise ProgramMismatch(f"BMv2 needs programs compiled by p4c: there is no {' or '.join(P4C)} on PATH")
    with tempfile.TemporaryDirectory() as directory:
        command = p4c_command(source, defines, Path(directory))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProgramMismatch(f"p4c refuses {source}: {done.stderr.strip()}")
        return replace(p4c_output(source, Path(directory)), name=program)


def p4c_on_path() -> Path | None:
    """Return the compiler for BMv2, None if PATH has neither of `P4C`."""
    return next((Path(found) for found in map(shutil.which, P4C) if found), None)


def p4c_command(
    source: Path, defines: Mapping[str, str], folder: Path, *, include_dirs: Sequence[Path] = ()
) -> list[str]:
    """Return the command that compiles a program for BMv2; it can be printed where there is no compiler.

    Args:
        source: The program.
        defines: Preprocessor definitions.
        folder: Where the results are written.
        include_dirs: Further directories of included files.
    """
    compiler = p4c_on_path() or Path(P4C[0])
    output = _json_in(folder, source)
    to = ["--target", "bmv2", "-o", str(folder)] if compiler.name == "p4c" else ["-o", str(output)]
    p4info = ["--p4runtime-files", str(_p4info_in(folder, source))]
    options = [f"-D{name}={value}" for name, value in defines.items()]
    options += [f"-I{path}" for path in include_dirs]
    return [str(compiler), *to, "--arch", "v1model", *p4info, *options, str(source)]


def p4c_output(source: Path, folder: Path) -> ProgramBundle:
    """Return the compiled program that `p4c_command` wrote into a folder."""
    from google.protobuf import text_format  # imported here: only BMv2 needs it

    text = _p4info_in(folder, source).read_text(encoding="utf-8")
    p4info = text_format.Parse(text, p4info_pb2.P4Info())
    return ProgramBundle(source.stem, p4info, _json_in(folder, source).read_bytes())


def _p4info_in(folder: Path, source: Path) -> Path:
    return folder / f"{source.stem}.p4info.txtpb"


def _json_in(folder: Path, source: Path) -> Path:
    return folder / f"{source.stem}.json"


_MAC, _IP = "02:00:00:00:00:01", "10.0.0.1"
_SAMPLE = Admission(
    job=1,
    counter_row=1,
    region=Region(0, 2),
    generation=1,
    group=1,
    members=(Member(0, 0, _MAC, _IP, 1),),
    fan_in=1,
    window=1,
    uplink=Uplink(1, _MAC, _IP),
    result_bitmap=1,
    change=RegionChange(1, Region(0, 2)),
)
_UNKNOWN = "for which the controller has no value"
_MAX_NAMED = 4


def capabilities(program: ProgramInfo, title: str) -> SwitchInfo:
    """Return the capacity that a program offers to jobs.

    Args:
        program: the objects of the program's P4Info.
        title: the program's name in errors, such as ``the program shared``.

    Raises ProgramMismatch, which names the missing part, if the program can serve no job at all.
    """
    lanes = sum(name.startswith(names.LANE_REGISTERS) for name in program.registers)
    lacking = [
        *missing(program, (job_row(_SAMPLE), *supporting_rows(_SAMPLE))),
        *_absent("counter", program.counters, names.OUTCOMES),
        *_absent("register", program.registers, names.SLOT_REGISTER),
        *([] if lanes else [f"register '{names.LANE_REGISTERS}0'"]),
    ]
    if lacking:
        raise ProgramMismatch(f"{title} is not one for aggregation: it lacks {_listed(lacking)}")
    rows = program.counters[names.OUTCOMES] // COLUMNS
    moving = [
        *missing(program, [change_row(_SAMPLE)]),
        *_absent("counter", program.counters, names.SETTLED),
    ]
    shared = (
        names.JOB_REGISTER in program.registers
        or names.CHANGE in program.tables
        or names.SETTLED in program.counters
    )
    lacks = {
        Feature.PREEMPTION: _absent("register", program.registers, names.PRIORITY_REGISTER),
        Feature.MOVES: moving,
        Feature.SHARDS: [] if names.LANE_WORK in program.tables else [f"table '{names.LANE_WORK}'"],
    }
    return SwitchInfo(
        lanes=lanes,
        slots=program.registers[names.SLOT_REGISTER],
        jobs=min(program.tables[names.JOB].size, program.tables[names.UPLINK].size, rows - 1),
        max_members=program.actions[names.SET_MEMBER]["bitmap"],
        mode="shared" if shared else "exclusive",
        salted=names.SALT_REGISTER in program.registers,
        lacks={feature: _listed(what) for feature, what in lacks.items() if what},
        title=title,
        aligned=program.physical is not None,
    )


def missing(program: ProgramInfo, rows: Iterable[Entry]) -> list[str]:
    """Return the names of the tables, fields, actions and parameters that a program lacks for these entries.

    The result is empty if the program can hold all of them.
    """
    found = (each for row in rows if isinstance(row, TableEntry) for each in _missing_for(program, row))
    return list(dict.fromkeys(found))


def _missing_for(program: ProgramInfo, row: TableEntry) -> Iterator[str]:
    table = program.tables.get(row.table)
    if table is None:
        yield f"table '{row.table}'"
        return
    yield from _missing_keys(table, row)
    if row.action not in table.actions:
        yield f"action '{row.action}' in table '{row.table}'"
        return
    params = program.actions[row.action]
    yield from (f"parameter '{name}' of action '{row.action}'" for name in row.params if name not in params)
    for name in params:
        if name not in row.params:
            yield f"an action '{row.action}' without parameter '{name}', {_UNKNOWN}"


def _missing_keys(table: TableInfo, row: TableEntry) -> Iterator[str]:
    for name, value in row.match.items():
        kind = table.keys.get(name)
        if kind is None:
            yield f"match field '{name}' of table '{row.table}'"
        elif kind not in _kinds(value):
            wanted = " or ".join(_kinds(value))
            yield f"match field '{name}' of table '{row.table}' of kind {wanted} (it is {kind})"
    for name in table.keys:
        if name not in row.match:
            yield f"a table '{row.table}' without match field '{name}', {_UNKNOWN}"


def _kinds(value: Match) -> tuple[str, ...]:
    """Return the kinds of match fields that accept a value of this type."""
    match value:
        case Lpm():
            return ("lpm",)
        case Ternary():
            return ("ternary",)
        case Range():
            return ("range",)
        case _:
            return ("exact", "optional")


def _absent(kind: str, objects: Mapping[str, int], name: str) -> list[str]:
    return [] if name in objects else [f"{kind} '{name}'"]


def _listed(lacking: list[str]) -> str:
    more = len(lacking) - _MAX_NAMED
    named = ", ".join(lacking[:_MAX_NAMED])
    return f"{named} and {more} more" if more > 0 else named
