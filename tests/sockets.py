"""Sockets of the tests' own."""

from __future__ import annotations

import hashlib
import socket


def bound_udp(timeout_s: float | None = None) -> socket.socket:
    """Open a UDP socket at a free port of 127.0.0.1."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    made.settimeout(timeout_s)
    return made


def digest_of(stream: socket.socket) -> str:
    """Read to the end of a stream; return the SHA-256 of what came."""
    digest = hashlib.sha256()
    while block := stream.recv(1 << 20):
        digest.update(block)
    return digest.hexdigest()
