"""The lower bound of `ina bench allreduce`: the same bytes copied over loopback and nothing else.

A parent and a child process pass UDP superframes of the frame size, with segmentation offload both
ways and at most `CREDIT` bytes unacknowledged, so that nothing is lost.
"""

from __future__ import annotations

import os
import socket
import time
from typing import NoReturn

UDP_SEGMENT = 103
UDP_GRO = 104
CREDIT = 1 << 20


def copy_time_s(total_bytes: int, frame_bytes: int) -> float:
    """Return the seconds that `total_bytes` take from one process to another over loopback UDP."""
    superframe = min(64, 65507 // frame_bytes) * frame_bytes
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            for end in (sender, receiver):
                end.bind(("127.0.0.1", 0))
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
                end.settimeout(10)
            receiver.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, frame_bytes)
            sender.connect(receiver.getsockname())
            receiver.connect(sender.getsockname())
            child = os.fork()
            if child == 0:
                _serve(receiver, total_bytes)
        sender.recv(8)  # it runs: the cost of a new process is not the copy's
        started = time.perf_counter()
        _send(sender, total_bytes, bytes(superframe))
        elapsed = time.perf_counter() - started
        _, status = os.waitpid(child, 0)
        if status:
            raise RuntimeError("the receiving process of the loopback copy failed")
        return elapsed


def _send(sender: socket.socket, total: int, superframe: bytes) -> None:
    sent = acknowledged = 0
    while acknowledged < total:
        while sent < total and sent - acknowledged < CREDIT:
            sent += sender.send(superframe)
        acknowledged = int.from_bytes(sender.recv(8))


def _serve(receiver: socket.socket, total: int) -> NoReturn:
    """Run the child process: none of the parent's code may run in it, not even after an error."""
    status = 1
    try:
        receiver.send(bytes(8))
        status = _receive(receiver, total)
    finally:
        os._exit(status)


def _receive(receiver: socket.socket, total: int) -> int:
    buffer = bytearray(65536)
    received = reported = 0
    while received < total:
        received += receiver.recv_into(buffer)
        if received - reported >= CREDIT // 4 or received >= total:
            receiver.send(received.to_bytes(8))
            reported = received
    return 0
