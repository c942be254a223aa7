"""Random P4 programs: valid, terminating, and full of what the language has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from .stimuli import number

PRELUDE = "#include <core.p4>\n#include <v1model.p4>\n"
PARAMETERS = "inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata"
STACK_SIZE = 3


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

    def literal(self, value: int) -> str:
        """Write a constant whose bits are `value`."""
        if self.boolean:
            return "true" if value & 1 else "false"
        if not self.signed:
            return f"{self.width}w{value}"
        if value >> (self.width - 1):
            return (
                f"(-{self.width}s{(1 << self.width) - value})"
                if value != 1 << (self.width - 1)
                else (f"(int<{self.width}>){self.width}w{value}")
            )
        return f"{self.width}s{value}"


BOOL = Kind(1, boolean=True)
WIDTHS = (1, 2, 3, 4, 7, 8, 9, 12, 13, 16, 17, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65, 96, 127, 128)


@dataclass(slots=True)
class Generator:
    """Writes one program. Everything random comes from `random`."""

    random: Random
    fields: dict[str, list[tuple[str, Kind]]] = field(default_factory=dict)  # of header types
    headers: list[str] = field(default_factory=list)
    stacks: list[str] = field(default_factory=list)
    places: list[tuple[str, Kind]] = field(default_factory=list)  # what can be read and assigned
    registers: list[tuple[str, Kind, int]] = field(default_factory=list)
    counters: list[tuple[str, int]] = field(default_factory=list)
    constants: list[tuple[str, Kind]] = field(default_factory=list)  # what can only be read
    fresh: int = 0

    # ----------------------------------------------------------------- the program

    def program(self) -> str:
        """Return the source text."""
        text = [PRELUDE, self._types(), self._parser()]
        text.append(self._control("In", "I2E"))
        text.append(self._control("Out", "E2E"))
        text.append(self._checksums("Check", "verify_checksum"))
        text.append(self._checksums("Renew", "update_checksum"))
        text.append(
            "control Emit(packet_out packet, in headers_t hdr) {\n    apply { packet.emit(hdr); }\n}\n"
        )
        text.append("V1Switch(Parse(), Check(), In(), Out(), Renew(), Emit()) main;\n")
        return "\n".join(text)

    def _name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def _kind(self) -> Kind:
        return Kind(self.random.choice(WIDTHS), self.random.randrange(4) == 0)

    def _types(self) -> str:
        random = self.random
        text = []
        for i in range(random.randint(2, 4)):
            name = f"h{i}_t"
            fields = [(f"f{j}", self._kind()) for j in range(random.randint(1, 5))]
            padding = -sum(kind.width for _, kind in fields) % 8
            if padding:
                fields.append(("pad", Kind(padding)))
            self.fields[name] = fields
            body = "".join(f"    {kind} {field};\n" for field, kind in fields)
            text.append(f"header {name} {{\n{body}}}\n")
        names = list(self.fields)
        members = []
        for i, name in enumerate(names):
            if i == len(names) - 1 and random.randrange(2):
                members.append(f"    {name}[{STACK_SIZE}] s{i};\n")
                self.stacks.append(f"hdr.s{i}")
                self.places += [
                    (f"hdr.s{i}[{j}].{field}", kind)
                    for j in range(STACK_SIZE)
                    for field, kind in self.fields[name]
                ]
            else:
                for copy in ("a", "b"):
                    members.append(f"    {name} {copy}{i};\n")
                    self.headers.append(f"hdr.{copy}{i}")
                    self.places += [(f"hdr.{copy}{i}.{field}", kind) for field, kind in self.fields[name]]
        text.append(f"struct headers_t {{\n{''.join(members)}}}\n")
        metadata = [(f"m{i}", self._kind()) for i in range(4)] + [("flag", BOOL), ("key", Kind(8))]
        lists = ("", "    @field_list(1)\n", "    @field_list(1, 2)\n")
        body = "".join(f"{random.choice(lists)}    {kind} {name};\n" for name, kind in metadata)
        text.append(f"struct metadata_t {{\n{body}}}\n")
        self.places += [(f"meta.{name}", kind) for name, kind in metadata]
        self.places.append(("standard_metadata.egress_spec", Kind(9)))
        return "\n".join(text)

    def _parser(self) -> str:
        random = self.random
        # Each state may go only to later ones, so every parser ends.
        order = [header for header in self.headers if header.startswith("hdr.a")]
        states = []
        for i, header in enumerate(order):
            body = [f"        packet.extract({header});\n"]
            if random.randrange(3) == 0:
                place, kind = self._place()
                body.append(f"        {place} = {self.expression(kind, 1)};\n")
            if random.randrange(4) == 0:
                body.append(f"        verify({self.expression(BOOL, 1)}, error.ParserInvalidArgument);\n")
            targets = [f"p{j}" for j in range(i + 1, len(order))] + ["accept", "accept"]
            if self.stacks:
                targets.append("stack")
            states.append(f"    state p{i} {{\n{''.join(body)}{self._transition(targets)}    }}\n")
        if self.stacks:
            stack = self.stacks[0]
            again = self.expression(BOOL, 1)
            states.append(
                f"    state stack {{\n        packet.extract({stack}.next);\n"
                f"        transition select({again}, packet.lookahead<bit<3>>()) {{\n"
                f"            (true, 3w0 &&& 3w4): stack;\n            default: accept;\n        }}\n    }}\n"
            )
        return (
            "parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta,\n"
            "             inout standard_metadata_t standard_metadata) {\n"
            f"    state start {{ transition {'p0' if order else 'stack'}; }}\n{''.join(states)}}}\n"
        )

    def _transition(self, targets: list[str]) -> str:
        random = self.random
        candidates = [(p, k) for p, k in self.places if not k.boolean and not k.signed and k.width <= 32]
        if not candidates or random.randrange(4) == 0:
            return f"        transition {random.choice(targets)};\n"
        subject, kind = random.choice(candidates)
        cases = []
        for _ in range(random.randint(1, 3)):
            a, b = number(random, kind.width), number(random, kind.width)
            match random.randrange(3):
                case 0:
                    keyset = kind.literal(a)
                case 1:
                    keyset = f"{kind.literal(a)} &&& {kind.literal(b)}"
                case _:
                    keyset = f"{kind.literal(min(a, b))} .. {kind.literal(max(a, b))}"
            cases.append(f"            {keyset}: {random.choice(targets)};\n")
        if random.randrange(4):
            cases.append(f"            default: {random.choice(targets)};\n")
        return f"        transition select({subject}) {{\n{''.join(cases)}        }}\n"

    def _control(self, name: str, clone: str) -> str:
        random = self.random
        outer = list(self.places)
        objects, tables = [], []
        for _ in range(random.randint(0, 2)):
            kind = Kind(random.choice((1, 8, 13, 16, 32, 48, 64)), random.randrange(4) == 0)
            self.registers.append((self._name("r"), kind, random.choice((1, 4, 16))))
            objects.append("    register<{1}>({2}) {0};\n".format(*self.registers[-1]))
        if random.randrange(2):
            self.counters.append((self._name("c"), random.choice((1, 5, 64))))
            objects.append(
                "    counter({1}, CounterType.packets_and_bytes) {0};\n".format(*self.counters[-1])
            )
        actions = []
        for _ in range(random.randint(1, 3)):
            action = self._name("act")
            parameters = [(self._name("arg"), self._kind()) for _ in range(random.randint(0, 2))]
            self.constants = parameters
            body = self.block(2, 2, leave=random.choice(("", "", "return", "exit")))
            self.constants = []
            declared = ", ".join(f"{kind} {parameter}" for parameter, kind in parameters)
            objects.append(f"    action {action}({declared}) {body}")
            actions.append((action, parameters))
        for _ in range(random.randint(0, 3)):
            table = self._name("t")
            objects.append(self._table(table, actions))
            tables.append(table)
        locals_ = [(self._name("x"), random.choice((self._kind(), BOOL))) for _ in range(2)]
        declared = "".join(f"        {k} {n} = {self.expression(k, 1)};\n" for n, k in locals_)
        self.places = outer + locals_
        statements = [self._apply(table, actions) for table in tables]
        statements += [self.statement(2, 2) for _ in range(random.randint(2, 6))]
        if random.randrange(3) == 0:
            statements.append(self._request(clone))
        random.shuffle(statements)
        self.places = outer
        self.registers, self.counters = [], []
        return f"control {name}({PARAMETERS}) {{\n{''.join(objects)}    apply {{\n{declared}{''.join(statements)}    }}\n}}\n"

    def _table(self, name: str, actions: list[tuple[str, list[tuple[str, Kind]]]]) -> str:
        random = self.random
        kinds = random.choice(
            (("exact",), ("exact",), ("lpm",), ("ternary", "exact"), ("range", "ternary", "optional"))
        )
        keys = []
        lpm = False
        for _ in range(random.randint(1, 3)):
            place, kind = self._place()
            match = random.choice(kinds)
            if kind.boolean or kind.signed or lpm and match == "lpm":
                match = "exact" if lpm or match == "lpm" else match
                if kind.signed or kind.boolean:
                    place, match = f"meta.key", ("exact" if match == "lpm" else match)
            lpm = lpm or match == "lpm"
            keys.append(f'{place}: {match} @name("k{len(keys)}");')
        listed = " ".join(f"{action};" for action, _ in actions)
        default, parameters = random.choice(actions)
        args = ", ".join(kind.literal(number(random, kind.width)) for _, kind in parameters)
        counter = ""
        declared = ""
        if random.randrange(2):
            declared = f"    direct_counter(CounterType.packets_and_bytes) d{name};\n"
            counter = f"        counters = d{name};\n"
        return (
            f"{declared}    table {name} {{\n        key = {{ {' '.join(keys)} }}\n"
            f"        actions = {{ {listed} @defaultonly NoAction; }}\n"
            f"        default_action = {random.choice((f'{default}({args})', 'NoAction()'))};\n"
            f"        size = {random.choice((4, 64))};\n{counter}    }}\n"
        )

    def _apply(self, table: str, actions: list[tuple[str, list[tuple[str, Kind]]]]) -> str:
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

    def _request(self, clone: str) -> str:
        requests = [
            "mark_to_drop(standard_metadata);",
            f"clone(CloneType.{clone}, 1);",
            f"clone_preserving_field_list(CloneType.{clone}, 32w2, 1);",
        ]
        if clone == "I2E":
            requests += ["resubmit_preserving_field_list(1);", "standard_metadata.mcast_grp = 1;"]
        else:
            requests += [
                "recirculate_preserving_field_list(2);",
                f"truncate(32w{self.random.randrange(40)});",
            ]
        return (
            f"        if ({self.expression(BOOL, 1)} && standard_metadata.instance_type == 0) {{\n"
            f"            {self.random.choice(requests)}\n        }}\n"
        )

    def _checksums(self, name: str, function: str) -> str:
        wanted = [
            (place, kind) for place, kind in self.places if kind == Kind(16) and place.startswith("hdr.a")
        ]
        body = ""
        if wanted:
            target, _ = self.random.choice(wanted)
            header = target.rsplit(".", 1)[0]
            data = [p for p, k in self.places if p.startswith(header + ".") and p != target and not k.boolean]
            if data:
                fields = ", ".join(data)
                body = f"        {function}({header}.isValid(), {{ {fields} }}, {target}, HashAlgorithm.csum16);\n"
        return (
            f"control {name}(inout headers_t hdr, inout metadata_t meta) {{\n    apply {{\n{body}    }}\n}}\n"
        )

    # ----------------------------------------------------------------- statements

    def block(self, depth: int, count: int, leave: str = "") -> str:
        """Return a block of `count` statements, perhaps with a conditional `leave` inside."""
        statements = [self.statement(depth - 1, depth) for _ in range(count)]
        if leave:
            condition = self.expression(BOOL, 1)
            statements.insert(self.random.randrange(count + 1), f"        if ({condition}) {{ {leave}; }}\n")
        return f"{{\n{''.join(statements)}        }}\n"

    def statement(self, depth: int, size: int) -> str:
        """Return one statement."""
        random = self.random
        choices: list[Callable[[], str]] = [self._assign] * 6 + [self._assign_slice] * 2
        if depth > 0:
            choices += [lambda: self._if(depth, size)] * 2
        if self.headers:
            choices += [self._validity, self._copy_header]
        if self.stacks:
            choices += [self._shift, self._indexed]
        if self.registers:
            choices += [self._register] * 3
        if self.counters:
            choices.append(self._count)
        choices.append(self._hash)
        return random.choice(choices)()

    def _assign(self) -> str:
        place, kind = self._place()
        return f"        {place} = {self.expression(kind, 3)};\n"

    def _assign_slice(self) -> str:
        wide = [(p, k) for p, k in self.places if k.width > 1 and not k.signed and not k.boolean]
        place, kind = self.random.choice(wide)
        low = self.random.randrange(kind.width)
        high = self.random.randrange(low, kind.width)
        return f"        {place}[{high}:{low}] = {self.expression(Kind(high - low + 1), 2)};\n"

    def _if(self, depth: int, size: int) -> str:
        text = f"        if ({self.expression(BOOL, 2)}) {self.block(depth, size)}"
        if self.random.randrange(2):
            text += f"        else {self.block(depth, 1)}"
        return text

    def _validity(self) -> str:
        return f"        {self.random.choice(self.headers)}.{self.random.choice(('setValid', 'setInvalid'))}();\n"

    def _copy_header(self) -> str:
        header = self.random.choice(self.headers)
        twin = header.replace(".a", ".b") if ".a" in header else header.replace(".b", ".a")
        return f"        {header} = {twin};\n"

    def _shift(self) -> str:
        stack, count = self.random.choice(self.stacks), self.random.randint(1, STACK_SIZE)
        return f"        {stack}.{self.random.choice(('push_front', 'pop_front'))}({count});\n"

    def _indexed(self) -> str:
        stack = self.random.choice(self.stacks)
        field, kind = self.random.choice(self.fields[f"h{stack[5:]}_t"])
        index = self.random.choice(("meta.key", "(meta.key & 8w3)", "(meta.key >> 6)"))
        target = f"{stack}[{index}].{field}"
        return f"        {target} = {self.expression(kind, 1)};\n"

    def _register(self) -> str:
        name, kind, size = self.random.choice(self.registers)
        index = self.random.choice((f"32w{self.random.randrange(size + 1)}", self.expression(Kind(32), 1)))
        targets = [place for place, k in self.places if k == kind]
        if targets and self.random.randrange(2):
            return f"        {name}.read({self.random.choice(targets)}, {index});\n"
        old = self._name("old")
        return (
            f"        {{\n            {kind} {old};\n            {name}.read({old}, {index});\n"
            f"            {name}.write({index}, {old} + {self.expression(kind, 1)});\n        }}\n"
        )

    def _count(self) -> str:
        name, size = self.random.choice(self.counters)
        index = self.random.choice((f"32w{self.random.randrange(size + 1)}", self.expression(Kind(32), 1)))
        return f"        {name}.count({index});\n"

    def _hash(self) -> str:
        targets = [place for place, k in self.places if not k.signed and not k.boolean and k.width <= 64]
        data = [place for place, k in self.places if not k.boolean]
        fields = ", ".join(self.random.sample(data, min(len(data), self.random.randint(1, 4))))
        algorithm = self.random.choice(("crc32", "crc16", "csum16", "xor16", "identity"))
        base, maximum = number(self.random, 16), number(self.random, 32)
        return (
            f"        hash({self.random.choice(targets)}, HashAlgorithm.{algorithm}, 16w{base}, "
            f"{{ {fields} }}, 32w{maximum});\n"
        )

    # ----------------------------------------------------------------- expressions

    def _place(self) -> tuple[str, Kind]:
        return self.random.choice(self.places)

    def expression(self, kind: Kind, depth: int) -> str:
        """Return an expression of type `kind`."""
        if depth == 0 or self.random.randrange(5) == 0:
            return self._leaf(kind)
        return self._boolean(depth - 1) if kind.boolean else self._arithmetic(kind, depth - 1)

    def _leaf(self, kind: Kind) -> str:
        same = [place for place, k in self.places + self.constants if k == kind]
        if same and self.random.randrange(4):
            return self.random.choice(same)
        if self.random.randrange(2):
            converted = self._converted(kind)
            if converted:
                return converted
        return kind.literal(number(self.random, kind.width))

    def _converted(self, kind: Kind) -> str:
        """Return some place cast to `kind`, or nothing."""
        place, other = self.random.choice(self.places + self.constants)
        if kind.boolean:
            return f"({place} == {other.literal(number(self.random, other.width))})"
        if other.boolean:
            return f"(bit<1>){place}" if kind == Kind(1) else ""
        if other.width == kind.width or other.signed == kind.signed:
            return f"({kind}){place}"
        return f"({kind})({Kind(kind.width, other.signed)}){place}"

    def _arithmetic(self, kind: Kind, depth: int) -> str:
        def sub(k: Kind = kind) -> str:
            return self.expression(k, depth)

        match self.random.randrange(11):
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
                wide = [
                    (p, k) for p, k in self.places if k.width >= kind.width and not k.boolean and not k.signed
                ]
                if wide:
                    place, other = self.random.choice(wide)
                    low = self.random.randrange(other.width - kind.width + 1)
                    return f"{place}[{low + kind.width - 1}:{low}]"
                return sub()
            case _:
                return self._converted(kind) or sub()

    def _boolean(self, depth: int) -> str:
        match self.random.randrange(6):
            case 0:
                return f"({self.expression(BOOL, depth)} {self.random.choice(('&&', '||'))} {self.expression(BOOL, depth)})"
            case 1:
                return f"(!{self.expression(BOOL, depth)})"
            case 2 if self.headers:
                return f"{self.random.choice(self.headers)}.isValid()"
            case 3 if self.headers:
                twin = self.random.choice(self.headers)[5:]
                return f"(hdr.a{twin} {self.random.choice(('==', '!='))} hdr.b{twin})"
            case _:
                kind = self._kind()
                operator = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
                return f"({self.expression(kind, depth)} {operator} {self.expression(kind, depth)})"
