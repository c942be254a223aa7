"""An interpreted program for the C engine: a ``struct p4_program`` whose functions call Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from softswitch.compiler import ir
from softswitch.engine.compiled import (
    ABI,
    CLONE,
    COPY,
    EGRESS,
    INGRESS,
    CCopy,
    CField,
    CProgram,
    CVerdict,
)
from softswitch.engine.pipeline import MAX_FRAME, Copy, Packet, Pipeline, Verdict

_VERDICT = [field.name for field in fields(Verdict)]
_COPY = [field.name for field in fields(Copy)]


class InterpretedProgram:
    """The engine's view of a `Pipeline` in Python.

    The engine identifies a packet by the address of its memory. This memory holds only the program's
    metadata, which captures read; the packet is kept here until the engine reuses the memory.
    """

    state_address = None

    def __init__(self, pipeline: Pipeline, failed: Callable[[BaseException], None]) -> None:
        """Run packets through `pipeline`. If it raises an exception, drop the packet and call `failed`."""
        self._pipeline = pipeline
        self._failed = failed
        self._packets: dict[int, Packet] = {}
        found = getattr(pipeline, "program", None)
        self._sizes = {} if found is None else dict(_sizes(found.meta))
        places = [
            CField(name.encode(), 8 * number, size) for number, (name, size) in enumerate(self._sizes.items())
        ]
        self._places = (CField * (len(places) + 1))(*places)  # the last one has no name
        copy = COPY(self._copy)
        self._program = CProgram(
            abi=ABI,
            packet_size=8 * len(places) + 8,
            ingress=INGRESS(self._ingress),
            copy=copy,
            lend=copy,
            clone=CLONE(self._clone),
            egress=EGRESS(self._egress),
            metadata=ctypes.addressof(self._places),
        )

    @property
    def ops_address(self) -> int:
        """Address of the program's ``struct p4_program``."""
        return ctypes.addressof(self._program)

    def _ingress(self, *told: Any) -> None:
        _, to, frame, _, length, port, instance_type, now_us, previous, field_list, verdict = told
        try:
            before = None if previous is None else self._packets[previous]
            data = ctypes.string_at(frame, length)
            packet, found = self._pipeline.ingress(data, port, now_us, instance_type, before, field_list)
            self._keep(to, packet)
        except BaseException as error:
            self._failed(error)
            found = Verdict(dropped=1)
        _tell(verdict, found)

    def _egress(
        self,
        _state: int,
        at: int,
        copy: ctypes._Pointer[CCopy],
        out: int,
        verdict: ctypes._Pointer[CVerdict],
    ) -> int:
        try:
            packet = self._packets[at]
            told = Copy(**{name: getattr(copy.contents, name) for name in _COPY})
            frame, found = self._pipeline.egress(packet, told)
            self._keep(at, packet)
        except BaseException as error:
            self._failed(error)
            frame, found = None, Verdict(dropped=1)
        _tell(verdict, found)
        frame = (frame or b"")[:MAX_FRAME]
        ctypes.memmove(out, frame, len(frame))
        return len(frame)

    def _copy(self, to: int, at: int) -> None:
        self._make(to, lambda: self._pipeline.copy_packet(self._packets[at]))

    def _clone(self, _state: int, to: int, at: int, frame: int, length: int, field_list: int) -> None:
        data = ctypes.string_at(frame, length)
        self._make(to, lambda: self._pipeline.clone_packet(self._packets[at], data, field_list))

    def _make(self, to: int, packet: Callable[[], Packet]) -> None:
        try:
            self._keep(to, packet())
        except BaseException as error:
            self._failed(error)

    def _keep(self, at: int, packet: Packet) -> None:
        self._packets[at] = packet
        values = self._pipeline.metadata(packet, list(self._sizes)) if self._sizes else {}
        for number, (name, size) in enumerate(self._sizes.items()):
            value = (values.get(name, 0) & (1 << 8 * size) - 1).to_bytes(8, "little")
            ctypes.memmove(at + 8 * number, value, 8)


def _sizes(struct: ir.Struct, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield name and size in bytes of the metadata fields of up to 64 bits, as in compiled programs."""
    for name, type_ in struct.fields:
        match type_:
            case ir.Struct():
                yield from _sizes(type_, f"{prefix}{name}.")
            case ir.Bits(width=width) if width <= 64:
                yield prefix + name, next(size for size in (1, 2, 4, 8) if width <= 8 * size)
            case ir.Bool() | ir.Enum():
                yield prefix + name, 1 if isinstance(type_, ir.Bool) else 4


def _tell(into: ctypes._Pointer[CVerdict], verdict: Verdict) -> None:
    for name in _VERDICT:
        setattr(into.contents, name, getattr(verdict, name))
