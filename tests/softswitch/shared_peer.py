"""The far end of a shared memory port, in Python: reads and writes the rings word by word."""

from __future__ import annotations

import mmap
import os
import socket
import struct
from types import TracebackType

MAGIC, VERSION, FRAME_AT = 0x52414E49, 1, 58
IN_HEAD, IN_TAIL, OUT_HEAD, OUT_TAIL, SWITCH_ASLEEP, PEER_ASLEEP, SLOTS_AT = 0, 64, 128, 192, 256, 320, 384
WIDEST = 9280
"""Room behind the last slot for the longest frame."""


def connected(path: str) -> socket.socket:
    """A connection to a port on which nothing has been said yet."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.settimeout(60)
    end.connect(path)
    return end


class Peer:
    """Rings to a switch's port. It looks at memory all the time, and is never asleep."""

    def __init__(self, path: str, slots: int = 64, frame_bytes: int = 1094) -> None:
        self.socket = connected(path)
        self.socket.send(struct.pack("=4I", MAGIC, VERSION, slots, frame_bytes))
        answer, descriptors, _, _ = socket.recv_fds(self.socket, 64, 4)
        (self.descriptor,) = descriptors
        _, _, self.slots, self.slot_bytes, self.area_bytes = struct.unpack("=4IQ", answer)
        self.memory = mmap.mmap(self.descriptor, self.area_bytes)
        self.out_at = SLOTS_AT + self.slots * self.slot_bytes + WIDEST
        self.written = self.taken = 0

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.memory.close()
        os.close(self.descriptor)
        self.socket.close()

    def word(self, at: int) -> int:
        """A word of the memory."""
        return int.from_bytes(self.memory[at : at + 4], "little")

    def set_word(self, at: int, value: int) -> None:
        """Write it."""
        self.memory[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")

    def send(self, frames: list[bytes]) -> None:
        """Write frames as there is room, and wake the switch if it says that it sleeps."""
        for frame in frames:
            while (self.written - self.word(IN_TAIL)) & 0xFFFFFFFF >= self.slots:
                os.sched_yield()
            at = SLOTS_AT + self.written % self.slots * self.slot_bytes
            self.memory[at + FRAME_AT : at + FRAME_AT + len(frame)] = frame
            self.set_word(at, len(frame))
            self.written += 1
        self.set_word(IN_HEAD, self.written)
        self.knock()

    def knock(self) -> None:
        """Wake the switch."""
        self.set_word(SWITCH_ASLEEP, 0)
        self.socket.send(b"\0")

    def receive(self, count: int) -> list[bytes]:
        """Wait for so many frames, and take them."""
        frames = []
        while len(frames) < count:
            while self.word(OUT_HEAD) == self.taken & 0xFFFFFFFF:
                os.sched_yield()
            at = self.out_at + self.taken % self.slots * self.slot_bytes
            length = self.word(at)
            frames.append(self.memory[at + FRAME_AT : at + FRAME_AT + length])
            self.taken += 1
            self.set_word(OUT_TAIL, self.taken)
        return frames

    def ended(self) -> bool:
        """Wait for the switch to say something, and return whether that is the end."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
