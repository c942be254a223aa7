"""TLS for connections to switches: the files that it needs, and the diagnosis of failed connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc

_ANSWER_S = 2.0
"""Time that a listening server may take to answer, seconds."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files for TLS: the server's CA; the client's certificate and key, if the server wants these."""

    server_ca: Path
    certificate: Path | None = None
    key: Path | None = None

    def credentials(self) -> Any:
        """Read the files; return them as gRPC credentials. Raises OSError if a file cannot be read."""
        return grpc.ssl_channel_credentials(
            self.server_ca.read_bytes(),
            self.key.read_bytes() if self.key else None,
            self.certificate.read_bytes() if self.certificate else None,
        )


def diagnose(address: str, tls: Tls | None) -> str | None:
    """Return why a connection to ``host:port`` fails if TLS, or its absence, is the reason; else None.

    gRPC itself only reports that the time is up. Makes one connection and closes it.
    """
    with contextlib.suppress(OSError, ValueError):  # no answer, or an address of another form
        where = urlsplit(f"//{address}")
        with socket.create_connection((where.hostname or "", where.port or 0), _ANSWER_S) as connection:
            if tls is None:
                return "it speaks TLS, and the request was without TLS" if _speaks_tls(connection) else None
            return _complaint(connection, where.hostname or "", tls)
    return None


def _speaks_tls(connection: socket.socket) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


def _complaint(connection: socket.socket, host: str, tls: Tls) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(tls.server_ca)
    except ssl.SSLError:
        return f"{tls.server_ca} holds no certificate in PEM"
    if tls.certificate is not None:
        try:
            context.load_cert_chain(tls.certificate, tls.key)
        except ssl.SSLError as error:
            return f"{tls.certificate} and {tls.key} are not a PEM certificate and its key: {_reason(error)}"
    try:
        with context.wrap_socket(connection, server_hostname=host) as encrypted:
            # A server of gRPC speaks first; in TLS 1.3 it refuses a client after the client's handshake.
            refused = not encrypted.recv(1)
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not valid by the CA in {tls.server_ca}: {error.verify_message}"
    except (ssl.SSLEOFError, ConnectionResetError):
        refused = True
    except ssl.SSLError as error:
        if "ALERT" not in (error.reason or ""):
            return f"it does not speak TLS ({_reason(error)})"
        refused = True
    if not refused:
        return None
    if tls.certificate is None:
        return "it ends the connection: it may want a client certificate"
    return f"it ends the connection: it may not trust the client certificate {tls.certificate}"


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
