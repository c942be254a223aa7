"""The switch programs of ``p4src`` and what a target needs to run one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from controller.errors import ProgramMismatch
from p4src.messages import p4info_pb2

LANES = (32, 64, 256)
"""Values per packet that programs can be built for (p4src/include/config.p4)."""

P4SRC = Path(__file__).resolve().parent.parent / "p4src"


@dataclass(frozen=True, slots=True)
class ProgramBundle:
    """A compiled program for one kind of switch.

    `device_config` is what the target loads: the preprocessed source for the embedded switch, the
    JSON of p4c for BMv2.
    """

    name: str
    p4info: Any
    device_config: bytes


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
    with tempfile.TemporaryDirectory() as directory:
        p4info_file, output = Path(directory) / "p4info.txtpb", Path(directory) / f"{source.stem}.json"
        command = [*_p4c(output), "--arch", "v1model", "--p4runtime-files", str(p4info_file)]
        command += [f"-D{name}={value}" for name, value in defines.items()]
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProgramMismatch(f"p4c refuses {source}: {done.stderr.strip()}")
        return ProgramBundle(
            program,
            text_format.Parse(p4info_file.read_text(encoding="utf-8"), p4info_pb2.P4Info()),
            output.read_bytes(),
        )


def _p4c(output: Path) -> list[str]:
    """Return the beginning of a command that compiles for BMv2 to this file."""
    if compiler := shutil.which("p4c-bm2-ss"):
        return [compiler, "-o", str(output)]
    if driver := shutil.which("p4c"):
        return [driver, "--target", "bmv2", "-o", str(output.parent)]
    raise ProgramMismatch("BMv2 needs programs compiled by p4c: there is no p4c-bm2-ss or p4c on PATH")
