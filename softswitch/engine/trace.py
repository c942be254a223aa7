"""The steps of a packet, for debugging programs.

========  ==============================  ======================================================
kind      name                            details
========  ==============================  ======================================================
ingress                                   port, bytes, instance_type
state     of the parser
extract   header                          its fields
error     of the parser
table     control-plane name              key, hit, action, arguments
action    called directly
read      register                        index, value (null: the index is beyond the end)
write     register                        index, old, value (old is null: beyond the end, lost)
drop      block
egress                                    port, bytes
========  ==============================  ======================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from softswitch.compiler.errors import Position


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a packet. The module's docstring lists the kinds. `pos` is the source position, if any."""

    kind: str
    name: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    pos: Position | None = None

    def as_json(self) -> dict[str, object]:
        """Return the step as an object for JSON; values of any width are numbers."""
        place = {} if self.pos is None else {"file": self.pos.file, "line": self.pos.line}
        return {"kind": self.kind, "name": self.name, **self.details, **place}

    def __str__(self) -> str:
        place = "" if self.pos is None else f"  ({self.pos.file}:{self.pos.line})"
        return f"{self.kind:8}{self.name}{_text(self.kind, self.details)}{place}"


Trace = Callable[[Event], None]


def _text(kind: str, details: Mapping[str, object]) -> str:
    match kind:
        case "table":
            how = "hit" if details["hit"] else "miss"
            arguments = _pairs(details["arguments"]).strip()
            return f" {how} {_pairs(details['key'])}-> {details['action']}({arguments})"
        case "read":
            return f"[{details['index']}] = {_value(details['value'])}"
        case "write":
            return f"[{details['index']}]: {_value(details['old'])} -> {_value(details['value'])}"
        case "ingress" | "egress":
            return " ".join(f"{name} {value}" for name, value in details.items())
        case _:
            return f" {_pairs(details)}".rstrip()


def _pairs(values: object) -> str:
    assert isinstance(values, Mapping)
    return "".join(f"{name}={_value(value)} " for name, value in values.items())


def _value(value: object) -> str:
    return "beyond the end" if value is None else f"{value:#x}" if type(value) is int else str(value)
