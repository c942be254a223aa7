"""Convert addresses of sockets from text to the form of Python's sockets."""

from __future__ import annotations

Address = tuple[str, int]
"""Host and port."""


def parse_address(text: str) -> Address:
    """Split ``host:port``; raises ValueError with the text if it is not of that form."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{text!r} is not an address of the form host:port")
    return host, int(port)
