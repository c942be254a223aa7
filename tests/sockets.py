"""What tests connect with: sockets, what comes through them, and a certificate authority, by openssl."""

from __future__ import annotations

import hashlib
import socket
import subprocess
from pathlib import Path


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


def make_certificates(where: Path) -> Path:
    """Make a CA (ca.pem) and its certificates server.pem and client.pem, for localhost; return `where`."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2"]
    _openssl(
        *("req", "-x509", *key, "-subj", "/CN=test CA"),
        *("-keyout", str(where / "ca.key"), "-out", str(where / "ca.pem")),
    )
    for name in ("server", "client"):
        _openssl(
            *("req", "-x509", *key, "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost"),
            *("-CA", str(where / "ca.pem"), "-CAkey", str(where / "ca.key")),
            *("-keyout", str(where / f"{name}.key"), "-out", str(where / f"{name}.pem")),
        )
    return where


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
