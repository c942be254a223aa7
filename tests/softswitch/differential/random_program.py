"""Random P4 programs: valid for p4c and BMv2, terminating, and full of what the language has."""

from __future__ import annotations

from dataclasses import dataclass

from .random_expressions import BOOL, Kind
from .random_statements import STACK_SIZE, Statements
from .stimuli import number

PARAMETERS = "inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata"
MATCHES = (("exact",), ("exact",), ("lpm",), ("ternary", "exact"), ("range", "ternary", "optional"))
REGISTER_WIDTHS = (1, 8, 13, 16, 32, 48, 64)
FIELD_LISTS = ("", "    @field_list(1)\n", "    @field_list(1, 2)\n")

Actions = list[tuple[str, list[tuple[str, Kind]]]]
"""Names of actions with their parameters."""


@dataclass(slots=True)
class Generator(Statements):
    """Writes one program."""

    def program(self) -> str:
        """Return the source text."""
        return "\n".join(
            [
                "#include <core.p4>\n#include <v1model.p4>\n",
                self._types(),
                self._parser(),
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
        members = "".join(self._pair(name) for name in names) + (self._stack(stack) if stack else "")
        metadata = [(f"m{i}", self.kind()) for i in range(4)] + [("flag", BOOL), ("key", Kind(8))]
        lines = "".join(f"{self.random.choice(FIELD_LISTS)}    {kind} {name};\n" for name, kind in metadata)
        self.places += [(f"meta.{name}", kind) for name, kind in metadata]
        self.places.append(("standard_metadata.egress_spec", Kind(9)))
        return f"{''.join(types)}struct headers_t {{\n{members}}}\n\nstruct metadata_t {{\n{lines}}}\n"

    def _header_type(self, name: str) -> str:
        fields: list[tuple[str, Kind]] = []
        for j in range(self.random.randint(1, 5)):
            kind = self.kind()
            if sum(k.width for _, k in fields) % 8 and kind.width > 64:
                kind = Kind(64, kind.signed)  # the C back end wants wider fields to start a byte
            fields.append((f"f{j}", kind))
        padding = -sum(kind.width for _, kind in fields) % 8
        if padding:
            fields.append(("pad", Kind(padding)))
        self.fields[name] = fields
        lines = "".join(f"    {kind} {field};\n" for field, kind in fields)
        return f"header {name} {{\n{lines}}}\n\n"

    def _pair(self, type_: str) -> str:
        """Declare two headers of one type: ``a`` for the parser, ``b`` to copy and compare."""
        number_ = type_[1:-2]
        headers = [f"{letter}{number_}" for letter in "ab"]
        self.headers += [f"hdr.{header}" for header in headers]
        self.places += [(f"hdr.{header}.{f}", kind) for header in headers for f, kind in self.fields[type_]]
        return "".join(f"    {type_} {header};\n" for header in headers)

    def _stack(self, type_: str) -> str:
        stack = f"s{type_[1:-2]}"
        self.stacks.append(f"hdr.{stack}")
        elements = [f"hdr.{stack}[{i}]" for i in range(STACK_SIZE)]
        self.places += [(f"{element}.{f}", kind) for element in elements for f, kind in self.fields[type_]]
        return f"    {type_}[{STACK_SIZE}] {stack};\n"

    # ----------------------------------------------------------------- parser

    def _parser(self) -> str:
        # Each state goes only to later ones, but for the stack's, which ends with the stack.
        order = [header for header in self.headers if header.startswith("hdr.a")]
        states = []
        for i, header in enumerate(order):
            targets = [f"p{j}" for j in range(i + 1, len(order))] + ["accept", "accept"]
            if self.stacks:
                targets.append("stack")
            body = f"        packet.extract({header});\n"
            if self.random.randrange(3) == 0:
                place, kind = self.random.choice(self.places)
                body += f"        {place} = {self.expression(kind, 1)};\n"
            if self.random.randrange(4) == 0:
                body += f"        verify({self.expression(BOOL, 1)}, error.ParserInvalidArgument);\n"
            states.append(f"    state p{i} {{\n{body}{self._transition(targets)}    }}\n")
        if self.stacks:
            states.append(
                f"    state stack {{\n        packet.extract({self.stacks[0]}.next);\n"
                f"        transition select({self.expression(BOOL, 1)}, packet.lookahead<bit<3>>()) {{\n"
                "            (true, 3w0 &&& 3w4): stack;\n            default: accept;\n        }\n    }\n"
            )
        return (
            f"parser Parse(packet_in packet, out headers_t hdr, {PARAMETERS.split(', ', 1)[1]}) {{\n"
            f"    state start {{ transition p0; }}\n{''.join(states)}}}\n"
        )

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
        objects = self._externs()
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
        body += [self.statement(2, 2) for _ in range(self.random.randint(2, 6))]
        if self.random.randrange(3) == 0:
            body.append(self._request(ingress))
        self.random.shuffle(body)
        self.places, self.registers, self.counters = outer, [], []
        apply = f"    apply {{\n{declared}{''.join(body)}    }}\n"
        return f"control {name}({PARAMETERS}) {{\n{objects}{apply}}}\n"

    def _externs(self) -> str:
        text = ""
        for _ in range(self.random.randint(0, 2)):
            kind = Kind(self.random.choice(REGISTER_WIDTHS), self.random.randrange(4) == 0)
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
        body = self.block(2, 2, leave=self.random.choice(("", "", "return", "exit")))
        self.constants = []
        declared = ", ".join(f"{kind} {parameter}" for parameter, kind in parameters)
        return f"    action {name}({declared}) {body}"

    def _table(self, name: str, actions: Actions) -> str:
        matches = self.random.choice(MATCHES)
        keys = []
        for i in range(self.random.randint(1, 3)):
            place, kind = self.random.choice(self.places)
            match = self.random.choice(matches)
            if match == "lpm" and i > 0:  # at most one
                match = "exact"
            if not kind.plain or (match == "range" and kind.width > 64):
                place = "meta.key"
            keys.append(f'{place}: {match} @name("k{i}");')
        default, parameters = self.random.choice(actions)
        args = ", ".join(kind.literal(number(self.random, kind.width)) for _, kind in parameters)
        counter, counters = "", ""
        if self.random.randrange(2):
            counter = f"    direct_counter(CounterType.packets_and_bytes) d{name};\n"
            counters = f"        counters = d{name};\n"
        return (
            f"{counter}    table {name} {{\n        key = {{ {' '.join(keys)} }}\n"
            f"        actions = {{ {' '.join(f'{action};' for action, _ in actions)} "
            "@defaultonly NoAction; }\n"
            f"        default_action = {self.random.choice((f'{default}({args})', 'NoAction()'))};\n"
            f"        size = {self.random.choice((4, 64))};\n{counters}    }}\n"
        )

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
        return (
            f"        if ({self.expression(BOOL, 1)} && standard_metadata.instance_type == 0) {{\n"
            f"            {self.random.choice(requests)}\n        }}\n"
        )

    def _checksums(self, name: str, function: str) -> str:
        body = ""
        targets = [place for place, kind in self.places if kind == Kind(16) and place.startswith("hdr.a")]
        if targets:
            target = self.random.choice(targets)
            header = target.rsplit(".", 1)[0]
            data = [p for p, _ in self.places if p.startswith(f"{header}.") and p != target]
            if data:
                body = (
                    f"        {function}({header}.isValid(), {{ {', '.join(data)} }}, {target},\n"
                    "            HashAlgorithm.csum16);\n"
                )
        return (
            f"control {name}(inout headers_t hdr, inout metadata_t meta) {{\n    apply {{\n{body}    }}\n}}\n"
        )
