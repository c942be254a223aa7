"""A program of which every frame says what is to be done with it (script.p4)."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from softswitch.engine.build import load
from softswitch.engine.ports import PortSpec
from softswitch.engine.switch import Switch
from tests.programs import program_of

SCRIPT = Path(__file__).with_name("script.p4")
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


ENGINES = [
    pytest.param(name, marks=pytest.mark.skipif(not have_compiler, reason="no C compiler"))
    for name in ("compiled", "interpreter")
]
"""The engine with the program compiled or interpreted."""


def digest(transcript: object) -> str:
    """What a test keeps of all that left a switch: text that differs if any frame, time or counter does."""
    return hashlib.sha256(repr(transcript).encode()).hexdigest()[:16]


def scripted(engine: str, ports: Mapping[int, PortSpec], *, loaded: bool = True, **settings: Any) -> Switch:
    """Return a switch of one of the `ENGINES` that runs the program; for `settings` see `Switch`."""
    switch = Switch(ports, **settings)
    if loaded:
        load_script(switch, engine)
    return switch


def load_script(switch: Switch, engine: Any = "compiled") -> None:
    """Load the program again."""
    switch.load(load(program_of(SCRIPT), backend=engine))
