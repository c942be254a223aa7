"""Random P4 expressions over whatever is in scope."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from .stimuli import number

WIDTHS = (1, 2, 3, 4, 7, 8, 9, 12, 13, 16, 17, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65, 96, 127, 128)


@dataclass(frozen=True, slots=True)
class Kind:
    """A scalar type: bit<width>, int<width> or bool."""

    width: int
    signed: bool = False
    boolean: bool = False

    def __str__(self) -> str:
        if self.boolean:
            return "bool"
        return f"{'int' if self.signed else 'bit'}<{self.width}>"

    @property
    def plain(self) -> bool:
        """Whether this is a bit<width>."""
        return not self.signed and not self.boolean

    def literal(self, value: int) -> str:
        """Write a constant whose bits are `value`."""
        if self.boolean:
            return "true" if value & 1 else "false"
        if not self.signed:
            return f"{self.width}w{value}"
        sign = 1 << (self.width - 1)
        if value == sign:  # has no positive counterpart to negate
            return f"(int<{self.width}>){self.width}w{value}"
        return f"(-{self.width}s{2 * sign - value})" if value & sign else f"{self.width}s{value}"


BOOL = Kind(1, boolean=True)

Place = tuple[str, Kind]
"""Something with a value: its text and its type."""


@dataclass(slots=True)
class Expressions:
    """Writes expressions. Everything random comes from `random`."""

    random: Random
    places: list[Place] = field(default_factory=list)  # what can be read and assigned
    constants: list[Place] = field(default_factory=list)  # what can only be read
    headers: list[str] = field(default_factory=list)  # in pairs of one type: hdr.a0, hdr.b0, ...
    wholes: list[str] = field(default_factory=list)  # comparisons of headers, stacks, structs, enums

    def kind(self) -> Kind:
        """Return a random bit or int type."""
        return Kind(self.random.choice(WIDTHS), self.random.randrange(4) == 0)

    def expression(self, kind: Kind, depth: int) -> str:
        """Return an expression of type `kind`."""
        if depth == 0 or self.random.randrange(5) == 0:
            return self._leaf(kind)
        return self._boolean(depth - 1) if kind.boolean else self._arithmetic(kind, depth - 1)

    def _readable(self) -> list[Place]:
        return self.places + self.constants

    def _leaf(self, kind: Kind) -> str:
        same = [place for place, other in self._readable() if other == kind]
        if same and self.random.randrange(4):
            return self.random.choice(same)
        converted = self._converted(kind) if self.random.randrange(2) else ""
        return converted or kind.literal(number(self.random, kind.width))

    def _converted(self, kind: Kind) -> str:
        """Return some place cast to `kind`, or nothing."""
        place, other = self.random.choice(self._readable())
        if kind.boolean:
            return f"({place} == {other.literal(number(self.random, other.width))})"
        if other.boolean:
            return f"(bit<1>){place}" if kind == Kind(1) else ""
        if other.width == kind.width or other.signed == kind.signed:
            return f"({kind}){place}"
        return f"({kind})({Kind(kind.width, other.signed)}){place}"

    def _arithmetic(self, kind: Kind, depth: int) -> str:
        def sub(other: Kind = kind) -> str:
            return self.expression(other, depth)

        match self.random.randrange(12):
            case 0 | 1 | 2:
                return f"({sub()} {self.random.choice(('+', '-', '&', '|', '^'))} {sub()})"
            case 3:
                return f"({sub()} * {sub()})"
            case 4:
                return f"({sub()} {self.random.choice(('|+|', '|-|'))} {sub()})"
            case 5:
                amount = self.random.choice((str(self.random.randrange(kind.width + 2)), sub(Kind(8))))
                return f"({sub()} {self.random.choice(('<<', '>>'))} {amount})"
            case 6:
                return f"({self.random.choice(('-', '~'))}{sub()})"
            case 7:
                return f"({sub(BOOL)} ? {sub()} : {sub()})"
            case 8 if not kind.signed and kind.width > 1:
                left = self.random.randrange(1, kind.width)
                return f"({sub(Kind(left))} ++ {sub(Kind(kind.width - left))})"
            case 9 if not kind.signed:
                return self._slice(kind) or sub()
            case 10 if not kind.signed:
                # a divisor that is known to be zero is an error
                same = [place for place, other in self._readable() if other == kind]
                return f"({sub()} {self.random.choice('/%')} {self.random.choice([*same, kind.literal(1)])})"
            case _:
                return self._converted(kind) or sub()

    def _slice(self, kind: Kind) -> str:
        wide = [(p, k) for p, k in self._readable() if k.width >= kind.width and k.plain]
        if not wide:
            return ""
        place, other = self.random.choice(wide)
        low = self.random.randrange(other.width - kind.width + 1)
        return f"{place}[{low + kind.width - 1}:{low}]"

    def _boolean(self, depth: int) -> str:
        match self.random.randrange(7):
            case 0:
                operator = self.random.choice(("&&", "||"))
                return f"({self.expression(BOOL, depth)} {operator} {self.expression(BOOL, depth)})"
            case 1:
                return f"(!{self.expression(BOOL, depth)})"
            case 2 if self.headers:
                return f"{self.random.choice(self.headers)}.isValid()"
            case 3 | 4 if self.wholes:
                return f"({self.random.choice(self.wholes)})"
            case _:
                kind = self.kind()
                operator = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
                return f"({self.expression(kind, depth)} {operator} {self.expression(kind, depth)})"
