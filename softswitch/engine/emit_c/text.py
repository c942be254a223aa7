"""Small helpers for writing C: identifiers, literals, indented text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from softswitch.compiler import ir

_KEYWORDS = frozenset(
    (
        *("auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum"),
        *("extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return"),
        *("short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void"),
        *(
            "volatile",
            "while",
            "asm",
            "typeof",
            "linux",
            "unix",
            "main",
            "errno",
            "stdin",
            "stdout",
            "stderr",
        ),
    )
)

RESERVED = (
    *("s", "p", "v", "i", "at", "end", "error", "to", "out", "words", "data", "digest", "max", "length"),
    *("subject", "outcome", "bits", "bytes", "states", "key", "entry", "lane", "lanes", "done"),
)
"""Names that generated C functions use for their own variables, and that no P4 variable may get."""


PARAMETERS = "struct p4_pipeline *restrict s, p4_state *restrict p, struct variables *restrict v"
"""Parameters of the C function of every block, action and table.

``restrict`` states that their structs do not overlap, so that the C compiler can load the fields of a header
together.
"""


class Names:
    """Hands out unique C identifiers, close to the P4 names."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, name: str) -> str:
        """Return an identifier for `name` that this object has not returned before."""
        base = re.sub(r"[^A-Za-z0-9_]+", "_", name) or "_"
        if base[0].isdigit() or base in _KEYWORDS or base.startswith(("p4_", "P4_", "__")):
            base = f"x_{base}"
        candidate, number = base, 1
        while candidate in self._taken:
            number += 1
            candidate = f"{base}_{number}"
        self._taken.add(candidate)
        return candidate


class Writer:
    """Lines of C at an indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def line(self, *texts: str) -> None:
        """Add lines or, without arguments, an empty line without indentation."""
        self.lines += ["    " * self._depth + text if text else "" for text in texts or ("",)]

    def when(self, condition: str, text: str) -> None:
        """Add an ``if`` with one statement."""
        self.line(f"if ({condition})", f"    {text}")

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        """Indent the lines of the ``with`` block, in braces after `opening`."""
        self.line(f"{opening} {{" if opening else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(closing)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Indent the lines of the ``with`` block."""
        self._depth += 1
        yield
        self._depth -= 1

    def template(
        self, template: str, *, parts: Mapping[str, Iterable[str]] | None = None, **words: str
    ) -> None:
        """Add the lines of `template`, and an empty line.

        A line ``@name@`` is replaced by the lines of the part with this name; ``@name@`` inside a line is
        replaced by the word with this name.
        """
        for line in template.splitlines():
            if line.startswith("@"):
                assert parts is not None
                self.lines += filter(None, parts[line.strip("@")])
            else:
                self.line(re.sub(r"@(\w+)@", lambda found: words[found[1]], line))
        self.line()

    def text(self) -> str:
        """Return all lines."""
        return "\n".join(self.lines) + "\n"


def is_signed(type_: ir.Type) -> bool:
    """Return True if a scalar is ``int<W>``."""
    return isinstance(type_, ir.Bits) and type_.signed


def storage_bits(width: int) -> int:
    """Return the size in bits of the smallest C integer that holds `width` bits."""
    return next(bits for bits in (8, 16, 32, 64, 128) if width <= bits)


def c_integer(bits: int) -> str:
    """Return the unsigned C type of 8, 16, 32, 64 or 128 bits."""
    return "p4_u128" if bits == 128 else f"uint{bits}_t"


def storage_type(type_: ir.Scalar) -> str:
    """Return the C type in which a scalar is stored."""
    return c_integer(storage_bits(ir.width_of(type_)))


def class_bits(width: int) -> int:
    """Return the size in bits of the C integer in which a `width`-bit value is computed."""
    return max(32, storage_bits(width))


def literal(value: int, width: int) -> str:
    """Return a C constant for the low `width` bits of `value`."""
    value &= (1 << width) - 1
    bits = class_bits(width)
    if bits == 128:
        if value < 1 << 64:
            return f"(p4_u128){literal(value, 64)}"
        return f"P4_U128({literal(value >> 64, 64)}, {literal(value & ((1 << 64) - 1), 64)})"
    digits = str(value) if value < 1024 else hex(value)
    return digits + ("u" if bits == 32 else "ull")


def unparenthesised(text: str) -> str:
    """Remove one pair of parentheses around the whole of `text`."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def comment(pos: ir.Position) -> str:
    """Return the text of a source position, made safe for a C comment."""
    return str(pos).replace("*/", "* /").replace("/*", "/ *")
