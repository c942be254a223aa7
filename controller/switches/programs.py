"""The switch programs of ``p4src`` and what a target needs to run one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from controller.errors import ProgramMismatch
from p4src.messages import p4info_pb2
from p4src.messages.cookie import cookie_of

LANES = (32, 64, 256)
"""Values per packet that programs can be built for (p4src/include/config.p4)."""

P4SRC = Path(__file__).resolve().parents[2] / "p4src"
P4C = ("p4c-bm2-ss", "p4c")
"""The compiler for BMv2, and the driver that calls it: either is enough."""


@dataclass(frozen=True, slots=True)
class ProgramBundle:
    """A compiled program for one kind of switch.

    `device_config` is what the target loads: the preprocessed source for the embedded switch, the
    JSON of p4c for BMv2.
    """

    name: str
    p4info: Any
    device_config: bytes

    @property
    def cookie(self) -> int:
        """What switches and controllers know it by (`p4src.messages.cookie`)."""
        return cookie_of(self.p4info, self.device_config)


def locate(program: str, *, lanes: int) -> tuple[Path, dict[str, str]]:
    """Return the source file of a program and the preprocessor definitions that build it.

    Raises ProgramMismatch if there is no such program, or none for so many lanes.
    """
    known = sorted(path.stem for path in P4SRC.glob("*.p4"))
    if program not in known:
        raise ProgramMismatch(f"there is no program '{program}'; there are {', '.join(known)}")
    if lanes not in LANES:
        choices = ", ".join(map(str, LANES))
        raise ProgramMismatch(f"programs are built for {choices} values per packet, not {lanes}")
    return P4SRC / f"{program}.p4", {"LANES": str(lanes)}


def bmv2_bundle(program: str, *, lanes: int) -> ProgramBundle:
    """Compile a program for BMv2 with ``p4c-bm2-ss`` or ``p4c``. Raises ProgramMismatch if that fails."""
    source, defines = locate(program, lanes=lanes)
    if p4c_on_path() is None:
        raise ProgramMismatch(f"BMv2 needs programs compiled by p4c: there is no {' or '.join(P4C)} on PATH")
    with tempfile.TemporaryDirectory() as directory:
        command = p4c_command(source, defines, Path(directory))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProgramMismatch(f"p4c refuses {source}: {done.stderr.strip()}")
        return p4c_output(source, Path(directory))


def p4c_on_path() -> Path | None:
    """Return the compiler for BMv2, None if PATH has neither of `P4C`."""
    return next((Path(found) for found in map(shutil.which, P4C) if found), None)


def p4c_command(
    source: Path, defines: Mapping[str, str], folder: Path, *, include_dirs: Sequence[Path] = ()
) -> list[str]:
    """Return the command that compiles a program for BMv2; it can be printed where there is no compiler."""
    compiler = p4c_on_path() or Path(P4C[0])
    output = _json_in(folder, source)
    to = ["--target", "bmv2", "-o", str(folder)] if compiler.name == "p4c" else ["-o", str(output)]
    p4info = ["--p4runtime-files", str(_p4info_in(folder, source))]
    options = [f"-D{name}={value}" for name, value in defines.items()]
    options += [f"-I{path}" for path in include_dirs]
    return [str(compiler), *to, "--arch", "v1model", *p4info, *options, str(source)]


def p4c_output(source: Path, folder: Path) -> ProgramBundle:
    """Return the compiled program that `p4c_command` wrote into a folder."""
    text = _p4info_in(folder, source).read_text(encoding="utf-8")
    p4info = text_format.Parse(text, p4info_pb2.P4Info())
    return ProgramBundle(source.stem, p4info, _json_in(folder, source).read_bytes())


def _p4info_in(folder: Path, source: Path) -> Path:
    return folder / f"{source.stem}.p4info.txtpb"


def _json_in(folder: Path, source: Path) -> Path:
    return folder / f"{source.stem}.json"


def source_of(program: str, lanes: int) -> tuple[Path, dict[str, str]]:
    """Return the source of a program of p4src, or of any file that ends in ``.p4``, and its definitions."""
    if program.endswith(".p4"):
        return Path(program), {"LANES": str(lanes)}
    return locate(program, lanes=lanes)
