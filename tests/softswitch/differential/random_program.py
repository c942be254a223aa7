"""Random P4 expressions over whatever is in scope.

Random P4 statements over whatever is in scope.

The part of a random program that is always the same: what its statements call.

Random P4 programs: valid for p4c and BMv2, terminating, and full of what the language has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.softswitch.differential.stimuli import number

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


STACK_SIZE = 3
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


LIBRARY = """\
enum bit<8> Code { A = 1, B = 7 }

enum Colour { Red, Green, Blue }

struct part_t {
    bit<8> x;
    bool   y;
    Colour colour;
}

action shuffle(inout bit<16> x, in bit<16> y, out bit<16> z) {
    x = x + y;
    z = x ^ y;
    x = x - 1;
}

bit<16> larger(in bit<16> x, in bit<16> y) {
    if (x > y) {
        return x;
    }
    return y;
}

bit<16> bump(inout bit<16> x) {
    x = x + 3;
    return x - 1;
}
"""
SUBCONTROL = """\
control Sub(inout bit<16> x, in bit<8> y, out bool z)(bit<16> step) {
    register<bit<16>>(4) seen;
    action add(bit<16> amount) {
        x = x + amount;
    }
    action stop() {
        exit;
    }
    table t {
        key = { y: exact; z: exact; x: ternary; }
        actions = { add; stop; NoAction; }
        default_action = add(step);
    }
    apply {
        bit<16> before;
        seen.read(before, (bit<32>)y);
        seen.write((bit<32>)y, x);
        z = before == x;
        if (before == 7) {
            return;
        }
        t.apply();
        x = x ^ before;
    }
}
"""


PARAMETERS = "inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata"
MATCHES = (("exact",), ("exact",), ("lpm",), ("ternary", "exact"), ("range", "ternary", "optional"))
REGISTER_WIDTHS = (1, 8, 13, 16, 32, 48, 64)
SIZES = ("        size = 4;\n", "        size = 64;\n", "")
STANDARD_FIELDS = (
    ("ingress_port", 9),
    ("egress_port", 9),
    ("instance_type", 32),
    ("packet_length", 32),
    ("enq_timestamp", 32),
    ("deq_timedelta", 32),
    ("egress_global_timestamp", 48),
    ("egress_rid", 16),
    ("checksum_error", 1),
    ("priority", 3),
)
FIELD_LISTS = ("", "    @field_list(1)\n", "    @field_list(1, 2)\n")

Actions = list[tuple[str, list[tuple[str, Kind]]]]
"""Names of actions with their parameters."""


@dataclass(slots=True)
class Generator(Statements):
    """Writes one program."""

    varbits: list[str] = field(default_factory=list)  # header types with a varbit field
    report: list[str] = field(default_factory=list)  # statements that fill the last header

    def program(self) -> str:
        """Return the source text."""
        return "\n".join(
            [
                "#include <core.p4>\n#include <v1model.p4>\n",
                LIBRARY,
                self._types(),
                self._parser(),
                SUBCONTROL,
                self._control("In", ingress=True),
                self._control("Out", ingress=False),
                self._checksums("Check", "verify_checksum"),
                self._checksums("Renew", "update_checksum"),
                "control Emit(packet_out packet, in headers_t hdr) {\n    apply { packet.emit(hdr); }\n}\n",
                "V1Switch(Parse(), Check(), In(), Out(), Renew(), Emit()) main;\n",
            ]
        )

    # ----------------------------------------------------------------- types

    def _types(self) -> str:
        types = [self._header_type(f"h{i}_t") for i in range(self.random.randint(2, 4))]
        names = list(self.fields)
        stack = names.pop() if self.random.randrange(2) else None
        members = "".join(self._pair(name) for name in names) + (self._stacks(stack) if stack else "")
        metadata = [(f"m{i}", self.kind()) for i in range(4)]
        metadata += [("flag", BOOL), ("key", Kind(8)), ("word", Kind(16)), ("other", Kind(16))]
        lines = "".join(f"{self.random.choice(FIELD_LISTS)}    {kind} {name};\n" for name, kind in metadata)
        report = self._report_type(metadata)
        lines += "    part_t one;\n    part_t two;\n    Code code;\n"
        self.places += [(f"meta.{name}", kind) for name, kind in metadata]
        self.places += [("meta.one.x", Kind(8)), ("meta.one.y", BOOL), ("meta.two.x", Kind(8))]
        self.wholes += ["meta.one == meta.two", "meta.one.colour != Colour.Red", "meta.code == Code.A"]
        self.places.append(("standard_metadata.egress_spec", Kind(9)))
        members += "    report_t report;\n"
        return (
            f"{''.join(types)}{report}struct headers_t {{\n{members}}}\n\nstruct metadata_t {{\n{lines}}}\n"
        )

    def _report_type(self, metadata: list[tuple[str, Kind]]) -> str:
        """Declare the header that shows at the end what would not be seen otherwise."""
        shown = [(f"meta.{name}", kind) for name, kind in metadata]
        shown += [(f"standard_metadata.{name}", Kind(width)) for name, width in STANDARD_FIELDS]
        lines = ""
        for i, (place, kind) in enumerate(shown):
            shown_kind = Kind(1) if kind.boolean else kind
            lines += f"    {shown_kind} r{i};\n"
            self.report.append(f"hdr.report.r{i} = {'(bit<1>)' if kind.boolean else ''}{place};")
        padding = -sum(kind.width for _, kind in shown) % 8
        lines += f"    bit<{padding}> pad;\n" if padding else ""
        return f"header report_t {{\n{lines}}}\n\n"

    def _header_type(self, name: str) -> str:
        fields: list[tuple[str, Kind]] = []
        for j in range(self.random.randint(1, 5)):
            kind = self.kind()
            if sum(k.width for _, k in fields) % 8 and kind.width > 64:
                kind = Kind(64, kind.signed)  # the C back end wants wider fields to start a byte
            fields.append((f"f{j}", kind))
        if self.random.randrange(2):
            fields.append(("sum", Kind(16)))
        padding = -sum(kind.width for _, kind in fields) % 8
        if padding:
            fields.append(("pad", Kind(padding)))
        self.fields[name] = fields
        lines = [f"    {kind} {field};\n" for field, kind in fields]
        if self.random.randrange(4) == 0:
            self.varbits.append(name)
            whole = [i for i in range(len(fields)) if sum(k.width for _, k in fields[:i]) % 8 == 0]
            lines.insert(self.random.choice(whole), "    varbit<64> options;\n")
        return f"header {name} {{\n{''.join(lines)}}}\n\n"

    def _pair(self, type_: str) -> str:
        """Declare two headers of one type: ``a`` for the parser, ``b`` to copy and compare."""
        number_ = type_[1:-2]
        headers = [f"{letter}{number_}" for letter in "ab"]
        self.headers += [f"hdr.{header}" for header in headers]
        self.places += [(f"hdr.{header}.{f}", kind) for header in headers for f, kind in self.fields[type_]]
        if type_ not in self.varbits:
            self.wholes += [f"hdr.a{number_} == hdr.b{number_}", f"hdr.a{number_} != hdr.b{number_}"]
        return "".join(f"    {type_} {header};\n" for header in headers)

    def _stacks(self, type_: str) -> str:
        """Declare two stacks of one type: ``s`` for the parser, ``t`` to copy and compare."""
        number_ = type_[1:-2]
        self.stacks.append(f"hdr.s{number_}")
        if type_ not in self.varbits:
            self.wholes.append(f"hdr.s{number_} == hdr.t{number_}")
        elements = [f"hdr.{letter}{number_}[{i}]" for letter in "st" for i in range(STACK_SIZE)]
        self.places += [(f"{element}.{f}", kind) for element in elements for f, kind in self.fields[type_]]
        return "".join(f"    {type_}[{STACK_SIZE}] {letter}{number_};\n" for letter in "st")

    # ----------------------------------------------------------------- parser

    def _parser(self) -> str:
        # Each state goes only to later ones, but for the stack's, which ends with the stack.
        order = [header for header in self.headers if header.startswith("hdr.a")]
        states = []
        for i, header in enumerate(order):
            targets = [f"p{j}" for j in range(i + 1, len(order))] + ["accept", "accept"]
            if self.stacks:
                targets.append("stack")
            body = self._extract(header) + "".join(self._parser_statement() for _ in range(2))
            states.append(f"    state p{i} {{\n{body}{self._transition(targets)}    }}\n")
        if self.stacks:
            stack = self.stacks[0]
            name, kind = self.fields[f"h{stack[5:]}_t"][0]
            body = self._extract(f"{stack}.next") + self._parser_statement()
            body += f"        meta.key = (bit<8>){stack}.lastIndex;\n"
            targets_ = [place for place, other in self.places if other == kind]
            body += f"        {self.random.choice(targets_)} = {stack}.last.{name};\n"
            states.append(
                f"    state stack {{\n{body}"
                f"        transition select({self.expression(BOOL, 1)}, packet.lookahead<bit<3>>()) {{\n"
                "            (true, 3w0 &&& 3w4): stack;\n            default: accept;\n        }\n    }\n"
            )
        return (
            f"parser Parse(packet_in packet, out headers_t hdr, {PARAMETERS.split(', ', 1)[1]}) {{\n"
            f"    state start {{ transition p0; }}\n{''.join(states)}}}\n"
        )

    def _extract(self, header: str) -> str:
        number_ = header.removeprefix("hdr.")[1:].removesuffix(".next")
        if f"h{number_}_t" not in self.varbits:
            return f"        packet.extract({header});\n"
        size = self.random.choice(("32w0", "32w16", "(bit<32>)(meta.key & 8w0x78)", "(bit<32>)meta.key"))
        return f"        packet.extract({header}, {size});\n"

    def _parser_statement(self) -> str:
        match self.random.randrange(12):
            case 0 | 1:
                place, kind = self.random.choice(self.places)
                return f"        {place} = {self.expression(kind, 1)};\n"
            case 2:
                return f"        verify({self.expression(BOOL, 1)}, error.ParserInvalidArgument);\n"
            case 3:
                return (
                    f"        packet.advance({self.random.choice(('32w8', '(bit<32>)(meta.key & 8w9)'))});\n"
                )
            case 4:
                place, kind = self.random.choice([(p, k) for p, k in self.places if k.plain])
                return f"        {place} = packet.lookahead<{kind}>();\n"
            case 5:
                return "        meta.key = packet.lookahead<bit<8>>();\n"
            case 6:
                return "        meta.word = (bit<16>)packet.length();\n"
            case 7:
                return (
                    f"        if ({self.expression(BOOL, 1)}) {{\n    {self._parser_statement()}        }}\n"
                )
            case _:
                return ""

    def _transition(self, targets: list[str]) -> str:
        candidates = [(place, kind) for place, kind in self.places if kind.plain and kind.width <= 32]
        if not candidates or self.random.randrange(4) == 0:
            return f"        transition {self.random.choice(targets)};\n"
        subject, kind = self.random.choice(candidates)
        cases = [self._keyset(kind) for _ in range(self.random.randint(1, 3))]
        if self.random.randrange(4):
            cases.append("default")
        lines = "".join(f"            {case}: {self.random.choice(targets)};\n" for case in cases)
        return f"        transition select({subject}) {{\n{lines}        }}\n"

    def _keyset(self, kind: Kind) -> str:
        first, second = number(self.random, kind.width), number(self.random, kind.width)
        match self.random.randrange(3):
            case 0:
                return kind.literal(first)
            case 1:
                return f"{kind.literal(first)} &&& {kind.literal(second)}"
            case _:
                return f"{kind.literal(min(first, second))} .. {kind.literal(max(first, second))}"

    # ----------------------------------------------------------------- controls

    def _control(self, name: str, *, ingress: bool) -> str:
        outer = list(self.places)
        objects = self._externs() + "    Sub(3) one;\n    Sub(9) two;\n"
        actions: Actions = []
        for _ in range(self.random.randint(1, 3)):
            actions.append((self.name("act"), [(self.name("arg"), self.kind()) for _ in range(2)]))
            objects += self._action(*actions[-1])
        tables = [self.name("t") for _ in range(self.random.randint(0, 3))]
        objects += "".join(self._table(table, actions) for table in tables)
        locals_ = [(self.name("x"), self.random.choice((self.kind(), BOOL))) for _ in range(2)]
        declared = "".join(f"        {k} {n} = {self.expression(k, 1)};\n" for n, k in locals_)
        self.places = outer + locals_
        body = [self._apply(table, actions) for table in tables]
        body += [f"        {sub}.apply({self._sub_arguments()});\n" for sub in ("one", "two")]
        body += [self.statement(2, 2) for _ in range(self.random.randint(2, 6))]
        if self.random.randrange(2):
            body.append(self._request(ingress))
        self.random.shuffle(body)
        if not ingress:
            body += self._show()
        self.places, self.registers, self.counters = outer, [], []
        apply = f"    apply {{\n{declared}{''.join(body)}    }}\n"
        return f"control {name}({PARAMETERS}) {{\n{objects}{apply}}}\n"

    def _show(self) -> list[str]:
        """Make visible what the packet ends with, though an exit may come before."""
        lines = ["hdr.report.setValid();", *self.report]
        lines += [f"{header}.setValid();" for header in self.headers if self.random.randrange(3) == 0]
        for stack in self.stacks:
            lines += [f"{stack}[{i}].setValid();" for i in range(STACK_SIZE) if self.random.randrange(3) == 0]
        return [f"        {line}\n" for line in lines]

    def _sub_arguments(self) -> str:
        word = self.random.choice([place for place, kind in self.places if kind == Kind(16)])
        flag = self.random.choice([place for place, kind in self.places if kind.boolean])
        return f"{word}, {self.expression(Kind(8), 1)}, {flag}"

    def _externs(self) -> str:
        text = ""
        for _ in range(self.random.randint(0, 2)):
            kind = Kind(self.random.choice(REGISTER_WIDTHS), self.random.randrange(4) == 0)
            kind = BOOL if self.random.randrange(8) == 0 else kind
            name, size = self.name("r"), self.random.choice((1, 4, 16))
            self.registers.append((name, kind, size))
            text += f"    register<{kind}>({size}) {name};\n"
        if self.random.randrange(2):
            name, size = self.name("c"), self.random.choice((1, 5, 64))
            self.counters.append((name, size))
            text += f"    counter({size}, CounterType.packets_and_bytes) {name};\n"
        return text

    def _action(self, name: str, parameters: list[tuple[str, Kind]]) -> str:
        self.constants = parameters
        body = self.block(2, 2, leave=self.random.choice(("", "", "", "return", "return", "exit")))
        self.constants = []
        declared = ", ".join(f"{kind} {parameter}" for parameter, kind in parameters)
        return f"    action {name}({declared}) {body}"

    def _table(self, name: str, actions: Actions) -> str:
        matches = self.random.choice(MATCHES)
        keys, kinds = [], []
        for i in range(self.random.randint(1, 3)):
            place, kind = self.random.choice(self.places)
            match = self.random.choice(matches)
            if match == "lpm" and i > 0:  # at most one
                match = "exact"
            if not kind.plain or (match == "range" and kind.width > 64):
                place, kind = "meta.key", Kind(8)
            if kind.width > 2 and self.random.randrange(2):  # so that packets hit
                place = f"({place} & {kind.literal(3)})"
            kinds.append((match, kind))
            keys.append(f'{place}: {match} @name("k{i}");')
        default, parameters = self.random.choice(actions)
        args = ", ".join(kind.literal(number(self.random, kind.width)) for _, kind in parameters)
        entries = self._const_entries(kinds, actions) if self.random.randrange(4) == 0 else ""
        counter, counters = "", ""
        if self.random.randrange(2):
            counter = f"    direct_counter(CounterType.packets_and_bytes) d{name};\n"
            counters = f"        counters = d{name};\n"
        return (
            f"{counter}    table {name} {{\n        key = {{ {' '.join(keys)} }}\n"
            f"        actions = {{ {' '.join(f'{action};' for action, _ in actions)} "
            "@defaultonly NoAction; }\n"
            f"        default_action = {self.random.choice((f'{default}({args})', 'NoAction()'))};\n"
            f"{entries or self.random.choice(SIZES)}{counters}    }}\n"
        )

    def _const_entries(self, kinds: list[tuple[str, Kind]], actions: Actions) -> str:
        lines = {}
        for _ in range(4):
            labels = []
            for match, kind in kinds:
                first, second = sorted(number(self.random, kind.width) for _ in range(2))
                choices = [kind.literal(first)]
                if match == "ternary":
                    choices += [f"{kind.literal(first & second)} &&& {kind.literal(second)}", "_"]
                elif match == "range":
                    choices += [f"{kind.literal(first)} .. {kind.literal(second)}", "_"]
                elif match == "optional":
                    choices.append("_")
                labels.append(self.random.choice(choices))
            action, parameters = self.random.choice(actions)
            args = ", ".join(kind.literal(number(self.random, kind.width)) for _, kind in parameters)
            lines[f"({', '.join(labels)})"] = f"{action}({args})"
        body = "".join(f"            {labels}: {call};\n" for labels, call in lines.items())
        return f"        const entries = {{\n{body}        }}\n"

    def _apply(self, table: str, actions: Actions) -> str:
        match self.random.randrange(4):
            case 0:
                return f"        {table}.apply();\n"
            case 1:
                return f"        if ({table}.apply().hit) {self.block(1, 2)}"
            case 2:
                return f"        if (!{table}.apply().hit) {self.block(1, 1)}        else {self.block(1, 1)}"
            case _:
                cases = "".join(f"            {action}: {self.block(1, 1)}" for action, _ in actions[:2])
                return (
                    f"        switch ({table}.apply().action_run) {{\n{cases}"
                    f"            default: {self.block(1, 1)}        }}\n"
                )

    def _request(self, ingress: bool) -> str:
        clone = "CloneType.I2E" if ingress else "CloneType.E2E"
        requests = [
            "mark_to_drop(standard_metadata);",
            f"clone({clone}, 1);",
            f"clone_preserving_field_list({clone}, 32w2, 1);",
        ]
        if ingress:
            requests += ["resubmit_preserving_field_list(1);", "standard_metadata.mcast_grp = 1;"]
        else:
            requests += ["recirculate_preserving_field_list(2);", "truncate(32w20);"]
        condition = self.random.choice(
            (self.expression(BOOL, 1), "meta.key[0:0] == 0", "meta.word < 16w0x800")
        )
        return (
            f"        if ({condition} && standard_metadata.instance_type == 0) {{\n"
            f"            {self.random.choice(requests)}\n        }}\n"
        )

    def _checksums(self, name: str, function: str) -> str:
        body = ""
        targets = [place for place, kind in self.places if kind == Kind(16) and place.startswith("hdr.a")]
        if targets:
            target = self.random.choice(targets)
            header = target.rsplit(".", 1)[0]
            data = [p for p, _ in self.places if p.startswith(f"{header}.") and p != target] + ["8w7"]
            if f"h{header[5:]}_t" in self.varbits:
                data.append(f"{header}.options")
            if self.random.randrange(3) == 0:
                function += "_with_payload"
            algorithm = self.random.choice(("csum16", "csum16", "crc16", "xor16", "crc32"))
            body = (
                f"        {function}({header}.isValid(), {{ {', '.join(data)} }}, {target},\n"
                f"            HashAlgorithm.{algorithm});\n"
            )
        return (
            f"control {name}(inout headers_t hdr, inout metadata_t meta) {{\n    apply {{\n{body}    }}\n}}\n"
        )
