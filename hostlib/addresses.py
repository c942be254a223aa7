"""Convert addresses of sockets from text to the form of Python's sockets."""

from __future__ import annotations

Address = tuple[str, int]
"""Host and port."""


def parse_address(text: str) -> Address:
    """Split ``host:port`` into host and port. Raises ValueError with the text for any other form.

    An IPv6 address must be in brackets, as in ``[::1]:9559``: otherwise ``::1`` would be port 1 of a host.
    """
    host, _, port = text.rpartition(":")
    if not host or (":" in host and host[0] + host[-1] != "[]") or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(f"{text!r} is not an address of the form host:port")
    return host, int(port)
