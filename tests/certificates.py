"""A certificate authority for tests, made by openssl."""

import subprocess
from pathlib import Path


def make(where: Path) -> Path:
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
