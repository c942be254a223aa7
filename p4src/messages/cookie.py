"""The cookie of a program, which identifies it to a switch and its controllers (P4Runtime, section 7).

Two programs with the same tables have the same P4Info, but may have different code. The cookie distinguishes
them without a transfer of the program.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

_LINE_MARKER = re.compile(rb"^[ \t]*#[ \t]*(?:line\b|\d).*\n?", re.MULTILINE)


def cookie_of(p4info: Any, device_config: bytes) -> int:
    r"""Return the first 64 bits of a SHA-256 digest of a program's text; never 0, which means "none".

    The place of compilation does not matter: line markers of preprocessed source, and file names and
    positions in p4c's JSON, are ignored.

    >>> from p4src.messages import p4info_pb2
    >>> here, there = b'#line 1 "/home/me/a.p4"\nconst bit<8> A = 1;', b'const bit<8> A = 1;'
    >>> cookie_of(p4info_pb2.P4Info(), here) == cookie_of(p4info_pb2.P4Info(), there)
    True
    """
    digest = hashlib.sha256(p4info.SerializeToString(deterministic=True))
    digest.update(b"\0" + _code(device_config))
    return int.from_bytes(digest.digest()[:8], "big") or 1


def _code(device_config: bytes) -> bytes:
    if device_config.startswith(b"{"):
        try:
            return json.dumps(_without_places(json.loads(device_config)), sort_keys=True).encode()
        except (ValueError, RecursionError):
            pass
    return _LINE_MARKER.sub(b"", device_config)


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_places(v) for k, v in value.items() if k not in ("source_info", "program")}
    if isinstance(value, list):
        return [_without_places(item) for item in value]
    return value
