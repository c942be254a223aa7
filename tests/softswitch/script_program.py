"""A pipeline of which every frame says what is to be done with it (script_program.c)."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from softswitch.engine.compiled import CProgram
from softswitch.engine.pipeline import Copy, Verdict
from softswitch.engine.ports import PortSpec
from softswitch.engine.switch import Switch

_HERE = Path(__file__).parent
RUNTIME = _HERE.parents[1] / "softswitch" / "engine" / "runtime"


@functools.cache
def build(source: Path = _HERE / "script_program.c") -> Path:
    """A C file as a shared object."""
    target = Path(tempfile.mkdtemp(prefix="ina-test-")) / f"{source.stem}.so"
    compiler = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-shared", "-fPIC", f"-I{RUNTIME}"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run([*compiler, *warnings, "-o", str(target), str(source)], check=True)
    return target


class ScriptPipeline:
    """The compiled program: as much of a pipeline as the C engine needs."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(build()))
        self.ops_address = ctypes.addressof(ctypes.c_char.in_dll(self._library, "p4_program"))
        self.state_address: int = CProgram.from_address(self.ops_address).create(0)

    @property
    def met(self) -> int:
        """Number of frames that came in as the engine had shown them to the program before their turn."""
        self._library.script_met.argtypes = (ctypes.c_void_p,)
        return int(self._library.script_met(self.state_address))


have_compiler = shutil.which(os.environ.get("CC", "cc")) is not None


def frame(
    what: str, to: int = 0, *, times: int = 0, clone: int = 0, where: str = " ", size: int = 64, tag: int = 0
) -> bytes:
    """A frame that asks for `what`, with priority `times` % 8; `tag` comes back in `Seen.tag`."""
    head = struct.pack("!cBHHcB", what.encode(), times, to, clone, where.encode(), 0)
    return head + bytes(24) + struct.pack("!I", tag) + bytes(size - 36)


@dataclass(frozen=True)
class Seen:
    """What egress wrote into a frame."""

    turns: int
    instance_type: int
    rid: int
    enq_qdepth: int
    deq_qdepth: int
    waited_us: int
    now_us: int
    tag: int
    size: int


def seen(data: bytes) -> Seen:
    """Read a frame that came out."""
    return Seen(data[7], *struct.unpack("!7I", data[8:36]), len(data))


class ScriptInterpreter:
    """The same program in Python, as an interpreted one."""

    def ingress(
        self,
        data: bytes,
        port: int,
        now_us: int = 0,
        instance_type: int = 0,
        previous: list[Any] | None = None,
        field_list: int = -1,
    ) -> tuple[list[Any], Verdict]:
        packet = [data, port, previous[2] if previous and field_list == 1 else 0]
        if len(data) < 32:
            return packet, Verdict(dropped=1)
        what, times, to, session, where = struct.unpack("!cBHHc", data[:7])
        verdict: dict[str, int] = {"priority": times % 8}
        if session and where == b"i" and instance_type == 0:
            verdict.update(clone=1, clone_session=session)
        if what == b"M":
            verdict.update(mcast_grp=to)
        elif what == b"D":
            verdict.update(dropped=1)
        elif what in (b"U", b"X", b"Z", b"R"):
            verdict.update(egress_spec=to)
            if what == b"R" and packet[2] < times:
                packet[2] += 1
                verdict.update(resubmit=1, resubmit_fields=1)
        elif data[0] & 1:
            verdict.update(mcast_grp=1)
        else:
            verdict.update(egress_spec=data[5])
        return packet, Verdict(**verdict)

    def egress(self, packet: list[Any], copy: Copy) -> tuple[bytes | None, Verdict]:
        data, port, turns = packet
        if len(data) < 32:
            return None, Verdict(dropped=1)
        if data[:1] not in (b"M", b"D", b"R", b"U", b"X", b"Z"):
            dropped = bool(data[0] & 1 and port == copy.egress_port)
            return (None if dropped else data), Verdict(dropped=int(dropped))
        what, times, _, session, where = struct.unpack("!cBHHc", data[:7])
        verdict = {"dropped": int(what == b"X")}
        if session and where == b"e" and copy.instance_type != 2:
            verdict.update(clone=1, clone_session=session)
        if what == b"Z" and turns < times:
            packet[2] = turns = turns + 1
            verdict.update(recirculate=1, recirculate_fields=1)
        said = (copy.instance_type, copy.egress_rid, copy.enq_qdepth, copy.deq_qdepth, copy.deq_timedelta)
        head = data[:7] + bytes([turns]) + struct.pack("!6I", *said, copy.now_us & 0xFFFFFFFF)
        return head + data[32:], Verdict(**verdict)

    def metadata(self, packet: list[Any], names: Sequence[str]) -> dict[str, int]:
        return {}

    def copy_packet(self, packet: list[Any]) -> list[Any]:
        return list(packet)

    def clone_packet(self, packet: list[Any], data: bytes, field_list: int = -1) -> list[Any]:
        return [data, packet[1], packet[2] if field_list == 1 else 0]


ENGINES = [
    pytest.param(name, marks=pytest.mark.skipif(not have_compiler, reason="no C compiler"))
    for name in ("compiled", "interpreted")
]
"""The engine with the program in C or in Python."""


def digest(transcript: object) -> str:
    """What a test keeps of all that left a switch: text that differs if any frame, time or counter does."""
    return hashlib.sha256(repr(transcript).encode()).hexdigest()[:16]


def scripted(engine: str, ports: Mapping[int, PortSpec], *, loaded: bool = True, **settings: Any) -> Switch:
    """Return a switch of one of the `ENGINES` that runs the program; for `settings` see `Switch`."""
    switch = Switch(ports, **settings)
    if loaded:
        load_script(switch, engine)
    return switch


def load_script(switch: Switch, engine: str) -> None:
    """Load the program again."""
    program: Any = ScriptPipeline() if engine == "compiled" else ScriptInterpreter()
    switch.load(program)  # a pipeline for the data plane only
