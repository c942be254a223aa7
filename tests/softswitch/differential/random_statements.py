"""Random P4 statements over whatever is in scope."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .random_expressions import BOOL, Expressions, Kind
from .stimuli import number

STACK_SIZE = 3
WHOLES = (
    "meta.one = meta.two;",
    "meta.two = meta.one;",
    "meta.one = { 8w3, true, Colour.Blue };",
    "meta.one.colour = Colour.Green;",
    "meta.one.x = (bit<8>)meta.code;",
    "meta.code = Code.B;",
    "meta.code = (Code)meta.key;",
    "meta.two.y = meta.one.colour == meta.two.colour;",
)
HASHES = ("crc32", "crc16", "csum16", "xor16", "identity")


@dataclass(slots=True)
class Statements(Expressions):
    """Writes statements, indented by eight."""

    fields: dict[str, list[tuple[str, Kind]]] = field(default_factory=dict)  # of header types
    stacks: list[str] = field(default_factory=list)
    registers: list[tuple[str, Kind, int]] = field(default_factory=list)
    counters: list[tuple[str, int]] = field(default_factory=list)
    fresh: int = 0

    def name(self, prefix: str) -> str:
        """Return a name that is new in the program."""
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def block(self, depth: int, count: int, leave: str = "") -> str:
        """Return a block of `count` statements, perhaps with a conditional `leave` inside."""
        statements = [self.statement(depth - 1, depth) for _ in range(count)]
        if leave:
            condition = self.expression(BOOL, 1)
            statements.insert(self.random.randrange(count + 1), f"        if ({condition}) {{ {leave}; }}\n")
        return f"{{\n{''.join(statements)}        }}\n"

    def statement(self, depth: int, size: int) -> str:
        """Return one statement; blocks inside it are `depth` deep and have `size` statements."""
        choices: list[Callable[[], str]] = [self._assign] * 6 + [self._assign_slice] * 2
        choices += [self._hash, self._random_number, self._call, self._whole]
        if depth > 0:
            choices += [lambda: self._if(depth, size)] * 2 + [lambda: self._switch(depth)]
        if self.headers:
            choices += [self._validity, self._copy_header]
        if self.stacks:
            choices += [self._shift, self._indexed]
        if self.registers:
            choices += [self._register] * 3
        if self.counters:
            choices.append(self._count)
        return self.random.choice(choices)()

    def _assign(self) -> str:
        place, kind = self.random.choice(self.places)
        return f"        {place} = {self.expression(kind, 3)};\n"

    def _assign_slice(self) -> str:
        place, kind = self.random.choice([(p, k) for p, k in self.places if k.width > 1 and k.plain])
        low = self.random.randrange(kind.width)
        high = self.random.randrange(low, kind.width)
        return f"        {place}[{high}:{low}] = {self.expression(Kind(high - low + 1), 2)};\n"

    def _if(self, depth: int, size: int) -> str:
        text = f"        if ({self.expression(BOOL, 2)}) {self.block(depth, size)}"
        if self.random.randrange(2):
            text += f"        else {self.block(depth, 1)}"
        return text

    def _switch(self, depth: int) -> str:
        place, kind = self.random.choice([(p, k) for p, k in self.places if k.plain and k.width <= 32])
        labels = sorted({number(self.random, kind.width) for _ in range(4)})
        cases = "".join(f"            {kind.literal(v)}: {self.block(depth, 1)}" for v in labels[:-1])
        cases += f"            {kind.literal(labels[-1])}:\n            default: {self.block(depth, 1)}"
        return f"        switch ({place}) {{\n{cases}        }}\n"

    def _whole(self) -> str:
        """Assign a struct, a stack or an enum."""
        choices = ["meta.one = meta.two;", "meta.two = meta.one;", "meta.one = { 8w3, true, Colour.Blue };"]
        choices += [
            "meta.one.colour = Colour.Green;",
            "meta.one.x = (bit<8>)meta.code;",
            "meta.code = Code.B;",
        ]
        choices += ["meta.code = (Code)meta.key;", "meta.two.y = meta.one.colour == meta.two.colour;"]
        for stack in self.stacks:
            choices += [f"{stack} = {stack.replace('.s', '.t')};", f"{stack.replace('.s', '.t')} = {stack};"]
        return f"        {self.random.choice(choices)}\n"

    def _call(self) -> str:
        """Call a function or an action with parameters, perhaps the same place twice."""
        words = [place for place, kind in self.places if kind == Kind(16)]
        x, y = self.random.choice(words), self.random.choice(words)
        return self.random.choice(
            (
                f"        shuffle({x}, {self.expression(Kind(16), 1)}, {y});\n",
                f"        {x} = larger({self.expression(Kind(16), 1)}, {y});\n",
                f"        {x} = bump({y}) + {self.random.choice(words)};\n",
            )
        )

    def _random_number(self) -> str:
        place, kind = self.random.choice([(p, k) for p, k in self.places if k.plain and k.width <= 64])
        return f"        random({place}, {self.expression(kind, 1)}, {self.expression(kind, 0)});\n"

    def _validity(self) -> str:
        method = self.random.choice(("setValid", "setInvalid"))
        return f"        {self.random.choice(self.headers)}.{method}();\n"

    def _copy_header(self) -> str:
        header = self.random.choice(self.headers)
        twin = header.replace(".a", ".b") if ".a" in header else header.replace(".b", ".a")
        return f"        {header} = {twin};\n"

    def _shift(self) -> str:
        stack, count = self.random.choice(self.stacks), self.random.randint(1, STACK_SIZE)
        return f"        {stack}.{self.random.choice(('push_front', 'pop_front'))}({count});\n"

    def _indexed(self) -> str:
        stack = self.random.choice(self.stacks)
        field_, kind = self.random.choice(self.fields[f"h{stack.removeprefix('hdr.s')}_t"])
        element = f"{stack}[{self.random.choice(('meta.key', '(meta.key & 8w3)', '(meta.key >> 6)'))}]"
        if self.random.randrange(2):
            return f"        {element}.{field_} = {self.expression(kind, 1)};\n"
        targets = [place for place, other in self.places if other == kind]
        return f"        {self.random.choice(targets)} = {element}.{field_};\n"

    def _register(self) -> str:
        name, kind, size = self.random.choice(self.registers)
        index = self._cell(size)
        targets = [place for place, other in self.places if other == kind]
        if targets and self.random.randrange(2):
            return f"        {name}.read({self.random.choice(targets)}, {index});\n"
        old = self.name("old")
        new = f"!{old}" if kind.boolean else f"{old} + {self.expression(kind, 1)}"
        return (
            f"        {{\n            {kind} {old};\n            {name}.read({old}, {index});\n"
            f"            {name}.write({index}, {new});\n        }}\n"
        )

    def _count(self) -> str:
        name, size = self.random.choice(self.counters)
        return f"        {name}.count({self._cell(size)});\n"

    def _cell(self, size: int) -> str:
        """Return an index that is mostly in range."""
        return self.random.choice(
            (
                f"32w{self.random.randrange(size + 1)}",
                f"({self.expression(Kind(32), 1)} & 32w{size})",
                self.expression(Kind(32), 1),
            )
        )

    def _hash(self) -> str:
        targets = [place for place, kind in self.places if kind.plain and kind.width <= 64]
        data = [place for place, kind in self.places if not kind.boolean]
        fields = ", ".join(self.random.sample(data, min(len(data), self.random.randint(1, 4))))
        base, maximum = number(self.random, 16), number(self.random, 32)
        return (
            f"        hash({self.random.choice(targets)}, HashAlgorithm.{self.random.choice(HASHES)}, "
            f"16w{base}, {{ {fields} }}, 32w{maximum});\n"
        )
