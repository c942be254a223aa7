"""A switch program handwritten in C (``by_hand.c``) for packets of one job: the upper bound of speed."""

from __future__ import annotations

import ctypes
import functools
import ipaddress
import weakref
from collections.abc import Sequence
from typing import Any

from controller.switches.model import Member
from hostlib import wire
from ina.bench.frame_loop import FrameLoop, compiled_loops


class ByHand:
    """The handwritten program with the entries and the slots of one job, whose root is this switch."""

    def __init__(self, job: int, workers: Sequence[Member], *, lanes: int, slots: int) -> None:
        """Admit a job.

        Args:
            job: The job's number.
            workers: The job's workers, by rank; up to 32.
            lanes: Number of values in a packet.
            slots: Number of the job's slots.

        Raises MemoryError, NoCompiler.
        """
        self._library = library = _library()
        self._state = library.by_hand_create(lanes, slots)
        if not self._state:
            raise MemoryError(f"no memory for {slots} slots of {lanes} values")
        weakref.finalize(self, library.by_hand_destroy, self._state)
        self._copies = len(workers)
        library.by_hand_admit(self._state, job, slots, len(workers))
        for worker in workers:
            addresses = bytes(wire.mac_bytes(worker.mac)), ipaddress.IPv4Address(worker.ip).packed
            library.by_hand_member(self._state, job, worker.rank, worker.port, *addresses, worker.udp_port)

    def process(self, frame: bytes, port: int) -> list[bytes]:
        """Process a frame that arrived at a port.

        Returns the result packets, one for each rank, if this frame completed a sum; empty if it did not.
        """
        out = ctypes.create_string_buffer(self._copies * len(frame))
        length = self._library.by_hand_process(self._state, frame, len(frame), port, self._copies, out)
        each = length // self._copies
        return [out.raw[at : at + each] for at in range(0, length, each)] if length else []

    def run_s(self, loop: FrameLoop, passes: int) -> float:
        """Process all frames of a loop `passes` times; return the processor time in seconds.

        The number that `FrameLoop` increments in each frame must be the frame's PSN.
        """
        frames = loop.frames(passes)
        self._library.by_hand_run(self._state, ctypes.byref(frames), self._copies)
        return float(frames.nanoseconds) * 1e-9


@functools.cache
def _library() -> Any:
    library = compiled_loops()
    u8, u16, u32 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32
    state, text = ctypes.c_void_p, ctypes.c_char_p
    library.by_hand_create.restype = state
    library.by_hand_create.argtypes = (u32, u32)
    library.by_hand_destroy.argtypes = (state,)
    library.by_hand_admit.argtypes = (state, u32, u32, u8)
    library.by_hand_member.argtypes = (state, u32, u16, u16, text, text, u16)
    library.by_hand_process.restype = u32
    library.by_hand_process.argtypes = (state, text, u32, u16, u16, text)
    library.by_hand_run.restype = None
    library.by_hand_run.argtypes = (state, ctypes.c_void_p, u16)
    return library
