"""The switch programs of ``p4src`` and how to build them for a target."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import p4src.programs
from controller.errors import ProgramMismatch
from controller.switches.capabilities import capabilities
from controller.switches.model import SwitchInfo
from controller.switches.target import ProgramInfo, TableInfo
from controller.switches.tofino_rows import as_seen
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
