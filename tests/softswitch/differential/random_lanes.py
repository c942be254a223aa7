"""Random P4 programs that spell out the same statements for many fields and registers.

Such runs become loops in C, and headers that are only passed on stay in the frame; what disturbs a
run (a lane left out, another order, an index that changes half way) must not be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

CONTROL_PARAMETERS = "inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata"
INDICES = ("meta.index", "meta.index", "meta.index & 32w3", "32w0", "INDEX_OF_LANE")
ACTIONS = 4
"""Actions per control; one bit of the first byte of a packet asks for each."""


@dataclass(slots=True)
class LaneGenerator:
    """Writes one program. Everything random comes from `random`."""

    random: Random
    large: bool = False
    lanes: int = 0
    kind: str = ""
    cells: int = 0
    index: str = ""  # of most register accesses in the control being written
    tidy: bool = False  # whether the run being written is a plain one of one header
    header: str = ""  # of that run

    def program(self) -> str:
        """Return the source text."""
        random = self.random
        # Headers above 128 bytes are kept in the frame, if they are nothing but lanes.
        self.large = random.randrange(2) == 0
        self.lanes = random.choice((33, 40) if self.large else (8, 9, 12, 16, 17, 33))
        width = random.choice((32, 32, 64) if self.large else (8, 16, 24, 32, 64))
        self.kind = f"{random.choice(('bit', 'bit', 'int'))}<{width}>"
        self.cells = random.choice((1, 4, 16))
        return "\n".join(
            [
                "#include <core.p4>\n#include <v1model.p4>\n",
                self._types(),
                self._parser(),
                self._control("In"),
                self._control("Out"),
                "control Nothing(inout headers_t hdr, inout metadata_t meta) {\n    apply { }\n}\n",
                "control Emit(packet_out packet, in headers_t hdr) {\n    apply { packet.emit(hdr); }\n}\n",
                "V1Switch(Parse(), Nothing(), In(), Out(), Nothing(), Emit()) main;\n",
            ]
        )

    def _types(self) -> str:
        plain = self.large and self.random.randrange(4) > 0
        before = (
            ""
            if plain
            else self.random.choice(("", "    bit<8> before;\n", "    bit<8> x;\n    bit<8> y;\n"))
        )
        after = "" if plain else self.random.choice(("", "    bit<16> after;\n"))
        values = "".join(f"    {self.kind} v{i};\n" for i in range(self.lanes))
        scalars = "".join(f"    {self.kind} {name};\n" for name in ("s", "t", "total"))
        return (
            "header op_t {\n    bit<8>  code;\n    bit<8>  index;\n}\n\n"
            f"header lanes_t {{\n{before}{values}{after}}}\n\n"
            "struct headers_t {\n    op_t    op;\n    lanes_t a;\n    lanes_t b;\n}\n\n"
            f"struct metadata_t {{\n{scalars}    bit<32> index;\n    bit<1>  flag;\n}}\n"
        )

    def _parser(self) -> str:
        return (
            f"parser Parse(packet_in packet, out headers_t hdr, {CONTROL_PARAMETERS.split(', ', 1)[1]}) {{\n"
            "    state start {\n        packet.extract(hdr.op);\n"
            "        meta.index = (bit<32>)hdr.op.index;\n"
            "        transition select(hdr.op.code[7:6]) {\n"
            "            0: accept;\n            1: second;\n            default: first;\n        }\n    }\n"
            "    state first {\n        packet.extract(hdr.a);\n"
            "        transition select(hdr.op.code[6:6]) {\n"
            "            1: second;\n            default: accept;\n        }\n    }\n"
            "    state second {\n        packet.extract(hdr.b);\n        transition accept;\n    }\n}\n"
        )

    def _control(self, name: str) -> str:
        random = self.random
        self.index = random.choice(INDICES)
        names = [f"{array}{lane}" for array in "rq" for lane in range(self.lanes)]
        if random.randrange(3) == 0:
            names.sort(key=lambda name: int(name[1:]))  # declared lane by lane
        registers = [f"    register<{self.kind}>({self.cells}) {name};\n" for name in names]
        if random.randrange(3) == 0:
            registers.insert(
                random.randrange(len(registers)), f"    register<bit<32>>({self.cells}) between;\n"
            )
        actions = [f"    action act{i}() {{\n{self._runs()}    }}\n" for i in range(ACTIONS)]
        calls = [f"        if (hdr.op.code[{i}:{i}] == 1) {{ act{i}(); }}\n" for i in range(ACTIONS)]
        calls.insert(random.randrange(ACTIONS), f"        {self._whole()}\n")
        calls.insert(random.randrange(ACTIONS), f"        if (meta.flag == 1) {{ {self._whole()} }}\n")
        return (
            f"control {name}({CONTROL_PARAMETERS}) {{\n{''.join(registers)}{''.join(actions)}"
            f"    apply {{\n{''.join(calls)}    }}\n}}\n"
        )

    def _whole(self) -> str:
        """Return a statement on whole headers or between runs."""
        return self.random.choice(
            (
                "hdr.b = hdr.a;",
                "hdr.a = hdr.b;",
                "hdr.a.setInvalid();",
                "hdr.a.setValid();",
                "hdr.b.setValid();",
                "meta.index = meta.index + 1;",
                "meta.index = 32w1;",
                f"meta.s = hdr.a.v{self.random.randrange(self.lanes)};",
                "if (hdr.a == hdr.b) { meta.total = meta.total + meta.s; }",
                f"hdr.b.v{self.random.randrange(self.lanes)} = meta.total;",
            )
        )

    # ----------------------------------------------------------------- runs

    def _runs(self) -> str:
        return "".join(self._run() for _ in range(self.random.choice((1, 1, 2))))

    def _run(self) -> str:
        """Return one group of statements, written out for each lane, perhaps with a disturbance."""
        random = self.random
        self.tidy = random.randrange(2) == 0
        self.header = random.choice("aab")
        # Registers that are always indexed alike are laid out together, so most are.
        index = random.choice(INDICES) if random.randrange(12) == 0 else self.index
        group = [self._template(index) for _ in range(random.randint(1, 5))]
        order = list(range(self.lanes - any("LANE+" in template for template in group)))
        if not self.tidy:
            self._disorder(order)
        lines = [[_written(template, lane) for template in group] for lane in order]
        if not self.tidy and random.randrange(2) == 0:
            disturbed = random.choice(lines)
            disturbed[random.randrange(len(disturbed))] = _written(self._template(index), 0)
        if random.randrange(6) == 0:
            lines.insert(random.randrange(len(lines)), [self._whole()])
        return "".join(f"        {line}\n" for lane in lines for line in lane)

    def _disorder(self, order: list[int]) -> None:
        match self.random.randrange(6):
            case 0:
                del order[self.random.randrange(len(order))]
            case 1:
                order.reverse()
            case 2:
                self.random.shuffle(order)
            case 3:
                del order[: self.random.randrange(4)]
            case _:
                pass

    def _template(self, index: str) -> str:
        """Return a statement with LANE for the lane's number and LANE+ for the next one's."""
        random = self.random
        if index == "INDEX_OF_LANE":
            index = "(bit<32>)hdr.op.index + 32wLANE"
        register = random.choice(("rLANE", "qLANE"))
        target = random.choice((self._lane(), self._lane(), "meta.t", "meta.total", "meta.s"))
        match random.randrange(9):
            case 0 | 1:
                return f"{register}.read({target}, {index});"
            case 2 | 3:
                return f"{register}.write({index}, {self._expression(2)});"
            case 4:
                condition = f"{self._expression(1)} {random.choice(('==', '<', '>='))} {self._expression(1)}"
                return f"if ({condition}) {{ {target} = {self._expression(1)}; }}"
            case 5 if not self.tidy:
                return random.choice(
                    (
                        "meta.index = meta.index ^ 32w1;",
                        f"meta.flag = {self._expression(1)} != {self._expression(0)} ? 1w1 : 1w0;",
                        f"{register}+.read({target}, {index});",
                        f"hdr.a.vLANE+ = {self._expression(1)};",
                    )
                )
            case _:
                return f"{target} = {self._expression(2)};"

    def _lane(self) -> str:
        header = self.header if self.tidy else self.random.choice("ab")
        return f"hdr.{header}.vLANE"

    def _expression(self, depth: int) -> str:
        random = self.random
        if depth and random.randrange(3):
            left, right = self._expression(depth - 1), self._expression(depth - 1)
            return f"({left} {random.choice(('+', '-', '^', '&', '|', '*', '|+|'))} {right})"
        choices = [self._lane(), self._lane(), "meta.t", "meta.s", "meta.total", self._literal()]
        if not self.tidy:
            choices += ["hdr.a.vLANE+", f"hdr.a.v{random.randrange(self.lanes)}"]
        return random.choice(choices)

    def _literal(self) -> str:
        width = int(self.kind[4:-1])
        number = self.random.choice((0, 1, 3, (1 << (width - 1)) - 1))
        return f"{width}{'s' if self.kind.startswith('int') else 'w'}{number}"


def _written(template: str, lane: int) -> str:
    return template.replace("LANE+", str(lane + 1)).replace("LANE", str(lane))
