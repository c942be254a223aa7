"""Expressions of the IR as C text.

A value of width W is a C expression of the unsigned type that computes W bits (32, 64 or 128), with
all higher bits zero. ``narrow`` marks expressions that C promotes to int (loads of 8- and 16-bit storage);
they are cast before arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.ir.verify import is_wide, too_wide
from softswitch.compiler.ir.walk import Path
from softswitch.engine.emit_c.layout import (
    ArrayRef,
    FieldSlot,
    HeaderHome,
    Homes,
    ScalarHome,
    StackHome,
)
from softswitch.engine.emit_c.text import (
    c_integer,
    class_bits,
    is_signed,
    literal,
    storage_bits,
    unparenthesised,
)


@dataclass(frozen=True, slots=True)
class Value:
    """A C expression; the module's docstring explains `narrow`."""

    text: str
    narrow: bool = False


@dataclass(frozen=True, slots=True)
class Scalar:
    """A C lvalue of a scalar or varbit; it exists only if the C condition `guard` holds (None: always)."""

    type: ir.Type
    text: str
    guard: str | None = None
    array: ArrayRef | None = None
    owner: HeaderHome | None = None  # the large header that contains it


@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """A C lvalue of a header; it exists only if the C condition `guard` holds (None: always)."""

    home: HeaderHome
    guard: str | None = None


@dataclass(frozen=True, slots=True)
class ParserCheck:
    """A check for the parser error `error`, which occurs if `condition` and all `guards` (C text) hold."""

    guards: tuple[str, ...]
    condition: str
    error: str


@dataclass(slots=True)
class Expressions:
    """Translates expressions; `locals` and `aliases` name the C variables that hold P4 storage."""

    homes: Homes
    locals: dict[str, str] = field(default_factory=dict)  # P4 variable to C local
    aliases: dict[str, str] = field(default_factory=dict)  # C lvalue to C local, inside rolled loops
    elements: dict[ArrayRef, str] = field(default_factory=dict)  # to C lvalue, inside rolled loops

    # ----------------------------------------------------------------- places

    def scalar(self, expr: ir.Expr) -> Scalar:
        """Return the C lvalue of an expression that names a scalar."""
        place = self._resolve(expr)
        assert isinstance(place, Scalar), f"{expr.pos}: no scalar"
        return place

    def header(self, expr: ir.Expr) -> HeaderPlace:
        """Return the C lvalue of an expression that names a header."""
        place = self._resolve(expr)
        assert isinstance(place, HeaderPlace), f"{expr.pos}: no header"
        return place

    def stack(self, expr: ir.Expr) -> StackHome:
        """Return the C storage of an expression that names a stack."""
        place = self._resolve(expr)
        assert isinstance(place, StackHome), f"{expr.pos}: no stack"
        return place

    def _resolve(self, expr: ir.Expr) -> Scalar | HeaderPlace | StackHome | Path:
        match expr:
            case ir.Var(name=name):
                if name in self.locals:
                    return Scalar(expr.type, self.locals[name])
                return self._at((name,), expr.type)
            case ir.Member(base=base, field=name):
                parent = self._resolve(base)
                if isinstance(parent, HeaderPlace):
                    slot = parent.home.layout.by_name[name]
                    return self._field(parent, slot)
                assert isinstance(parent, tuple)
                return self._at((*parent, name), expr.type)
            case ir.Index(base=base, index=index):
                stack = self.stack(base)
                if isinstance(index, ir.Const):
                    if 0 <= index.value < stack.size:
                        return HeaderPlace(_element(stack, str(index.value)))
                    return HeaderPlace(_element(stack, "0"), guard="0")
                text = self._index(index)
                return HeaderPlace(_element(stack, text), guard=f"{text} < {stack.size}")
            case ir.Next(base=base):
                stack = self.stack(base)
                return HeaderPlace(_element(stack, stack.next))
            case ir.Last(base=base):
                stack = self.stack(base)
                return HeaderPlace(_element(stack, f"{stack.next} - 1"))
            case _:
                raise TypeError(f"{expr.pos}: no place: {type(expr).__name__}")

    def _at(self, path: Path, type_: ir.Type) -> Scalar | HeaderPlace | StackHome | Path:
        if isinstance(type_, ir.Struct):
            return path
        match self.homes.home(path):
            case HeaderHome() as home:
                return HeaderPlace(home)
            case ScalarHome(type=scalar_type, text=text):
                return Scalar(scalar_type, self.aliases.get(text, text))
            case stack:
                return stack

    def _field(self, header: HeaderPlace, slot: FieldSlot) -> Scalar:
        array = slot.array
        text = f"{header.home.text}.{slot.member}"
        if array is not None:
            array = ArrayRef(f"{header.home.text}.{array.array}", array.index)
            text = self.elements.get(array, text)
        owner = header.home if header.home.where else None
        return Scalar(slot.type, self.aliases.get(text, text), header.guard, array, owner)

    def _index(self, index: ir.Expr) -> str:
        """Return the C text of an index, signed or not, that compares correctly with a size."""
        value = self.value(index)
        if is_signed(index.type):
            width = ir.width_of(index.type)
            bits = class_bits(width)
            return f"({c_integer(bits)})p4_signed{bits}({value.text}, {width})"
        return value.text

    def index(self, index: ir.Expr) -> str:
        """Return the C text of an array index; a negative one compares above every size."""
        return self._index(index)

    # ----------------------------------------------------------------- values

    def text(self, expr: ir.Expr) -> str:
        """Return `expr` as a C expression without outer parentheses."""
        return unparenthesised(self.value(expr).text)

    def value(self, expr: ir.Expr) -> Value:
        """Return the C expression for `expr`, a scalar of at most 128 bits."""
        match expr:
            case ir.Const(type=type_, value=value):
                if isinstance(type_, ir.Bool):
                    return Value(str(value), narrow=True)
                self._check_width(expr)
                return Value(literal(value, ir.width_of(type_)))
            case ir.Var() | ir.Member():
                return self._load(expr)
            case ir.LastIndex(base=base):
                return Value(f"({self.stack(base).next} - 1u)")
            case ir.Slice():
                return self._slice(expr)
            case ir.Unary():
                return self._unary(expr)
            case ir.Binary():
                return self._binary(expr)
            case ir.Cast():
                return self._cast(expr)
            case ir.Mux():
                condition = self.value(expr.condition).text
                return Value(f"({condition} ? {self.wide(expr.then)} : {self.wide(expr.otherwise)})")
            case ir.IsValid(header=header_expr):
                header = self.header(header_expr)
                if header.guard is not None:
                    return Value(f"({header.guard} && {header.home.valid})", narrow=True)
                return Value(header.home.valid, narrow=True)
            case ir.Lookahead():
                return self._lookahead(expr)
            case ir.PacketLength():
                return Value("p->frame_length")
            case _:
                raise TypeError(f"{expr.pos}: no value: {type(expr).__name__}")

    def wide(self, expr: ir.Expr) -> str:
        """Return `expr` as an operand of arithmetic, cast to the C type that computes its width."""
        value = self.value(expr)
        if not value.narrow or isinstance(expr, ir.Const):
            return value.text
        return f"({c_integer(class_bits(ir.width_of(expr.type)))}){value.text}"

    def signed(self, expr: ir.Expr) -> str:
        """Return the signed value of an ``int<W>`` expression."""
        width = ir.width_of(expr.type)
        return f"p4_signed{class_bits(width)}({self.value(expr).text}, {width})"

    def _check_width(self, expr: ir.Expr) -> None:
        if is_wide(expr.type):
            raise too_wide("a value", ir.width_of(expr.type), expr.pos)

    def _load(self, expr: ir.Expr) -> Value:
        self._check_width(expr)
        place = self.scalar(expr)
        narrow = storage_bits(ir.width_of(expr.type)) < 32
        if place.guard is not None:
            return Value(f"({place.guard} ? {place.text} : 0)", narrow)
        return Value(place.text, narrow)

    def _slice(self, expr: ir.Slice) -> Value:
        width = expr.high - expr.low + 1
        base = self.wide(expr.base)
        text = f"({base} >> {expr.low})" if expr.low else base
        if expr.high + 1 < ir.width_of(expr.base.type):
            text = f"({text} & {literal(-1, width)})"
        return self._narrowed(text, ir.width_of(expr.base.type), width)

    def _narrowed(self, text: str, from_width: int, to_width: int) -> Value:
        """Return `text`, whose value fits `to_width` bits, cast to the C type that computes that width."""
        if class_bits(from_width) != class_bits(to_width):
            return Value(f"({c_integer(class_bits(to_width))}){text}")
        return Value(text)

    def _unary(self, expr: ir.Unary) -> Value:
        if expr.op == "!":
            return Value(f"!{self.value(expr.operand).text}", narrow=True)
        self._check_width(expr)
        sign = {"-": "0 - ", "~": "~"}[expr.op]
        return Value(self._masked(f"({sign}{self.wide(expr.operand)})", ir.width_of(expr.type)))

    def _masked(self, text: str, width: int) -> str:
        if width == class_bits(width):
            return text
        return f"({text} & {literal(-1, width)})"

    def _binary(self, expr: ir.Binary) -> Value:
        match expr.op:
            case "&&" | "||":
                left, right = self.value(expr.left).text, self.value(expr.right).text
                return Value(f"({left} {expr.op} {right})", narrow=True)
            case "==" | "!=":
                return self._equality(expr)
            case "<" | "<=" | ">" | ">=":
                if is_signed(expr.left.type):
                    text = f"({self.signed(expr.left)} {expr.op} {self.signed(expr.right)})"
                else:
                    text = f"({self.wide(expr.left)} {expr.op} {self.wide(expr.right)})"
                return Value(text, narrow=True)
            case _:
                self._check_width(expr)
                return self._arithmetic(expr)

    def _arithmetic(self, expr: ir.Binary) -> Value:
        width = ir.width_of(expr.type)
        bits = class_bits(width)
        match expr.op:
            case "+" | "-" | "*":
                text = f"({self.wide(expr.left)} {expr.op} {self.wide(expr.right)})"
                return Value(self._masked(text, width))
            case "&" | "|" | "^":
                left, right = self.value(expr.left), self.value(expr.right)
                return Value(f"({left.text} {expr.op} {right.text})", left.narrow and right.narrow)
            case "/" | "%":
                name = {"/": "div", "%": "mod"}[expr.op]
                left_text, right_text = self.wide(expr.left), self.wide(expr.right)
                if is_signed(expr.type):
                    return self._generic(f"p4_{name}_signed", left_text, right_text, width)
                return Value(f"p4_{name}{bits}({left_text}, {right_text})")
            case "|+|" | "|-|":
                name = {"|+|": "p4_add_saturated", "|-|": "p4_sub_saturated"}[expr.op]
                if width == 32:
                    name += "_signed32" if is_signed(expr.type) else "32"
                    return Value(f"{name}({self.value(expr.left).text}, {self.value(expr.right).text})")
                name += "_signed" if is_signed(expr.type) else ""
                return self._generic(name, self.wide(expr.left), self.wide(expr.right), width)
            case "<<" | ">>":
                return self._shift(expr, width, bits)
            case "++":
                shift = ir.width_of(expr.right.type)
                left_text = f"({c_integer(bits)}){self.value(expr.left).text}"
                return Value(f"({left_text} << {shift} | {self.value(expr.right).text})")
            case _:
                raise ValueError(f"{expr.pos}: no such operator: {expr.op}")

    def _generic(self, function: str, left: str, right: str, width: int) -> Value:
        return Value(f"({c_integer(class_bits(width))}){function}({left}, {right}, {width})")

    def _shift(self, expr: ir.Binary, width: int, bits: int) -> Value:
        left, right = self.wide(expr.left), self.value(expr.right).text
        signed = expr.op == ">>" and is_signed(expr.type)
        if signed:
            return self._generic("p4_shr_signed", left, right, width)
        if isinstance(expr.right, ir.Const):
            by = expr.right.value
            if by >= width:
                return Value(literal(0, width))
            text = f"({left} {expr.op} {by})"
        else:
            name = {"<<": "shl", ">>": "shr"}[expr.op]
            text = f"p4_{name}{bits}({left}, {right}, {width})"
        return Value(self._masked(text, width) if expr.op == "<<" else text)

    def _cast(self, expr: ir.Cast) -> Value:
        operand, source = expr.operand, expr.operand.type
        if isinstance(expr.type, ir.Bool):
            return Value(f"({self.value(operand).text} != 0)", narrow=True)
        self._check_width(expr)
        width, old = expr.type.width, ir.width_of(source)
        if width == old:
            return self.value(operand)
        if width < old:
            return self._narrowed(f"({self.wide(operand)} & {literal(-1, width)})", old, width)
        bits = class_bits(width)
        if is_signed(source):
            extended = f"({c_integer(bits)})p4_signed{bits}({self.value(operand).text}, {old})"
            return Value(self._masked(extended, width))
        if class_bits(old) != bits:
            return Value(f"({c_integer(bits)}){self.value(operand).text}")
        return self.value(operand)

    def _lookahead(self, expr: ir.Lookahead) -> Value:
        self._check_width(expr)
        width = expr.type.width
        read, pad = (width + 7) // 8, -width % 8
        text = load_bytes(f"at + {expr.skip}" if expr.skip else "at", read, class_bits(width))
        if pad:
            text = f"({text} >> {pad})"
        return Value(text, narrow=read == 1)

    # ----------------------------------------------------------------- comparison

    def _equality(self, expr: ir.Binary) -> Value:
        left, right = expr.left, expr.right
        match left.type:
            case ir.Header() | ir.Stack() | ir.Struct():
                text = " && ".join(self._equal_aggregates(left, right)) or "1"
                return Value(f"({text})" if expr.op == "==" else f"(!({text}))", narrow=True)
            case ir.VarBits():
                text = self._equal_varbits(self.scalar(left).text, self.scalar(right).text)
                return Value(f"({text})" if expr.op == "==" else f"(!({text}))", narrow=True)
            case _ if is_wide(left.type):
                size = (ir.width_of(left.type) + 7) // 8
                text = f"memcmp({self.scalar(left).text}, {self.scalar(right).text}, {size})"
                return Value(f"({text} {expr.op} 0)", narrow=True)
            case _:
                return Value(f"({self.wide(left)} {expr.op} {self.wide(right)})", narrow=True)

    def _equal_varbits(self, left: str, right: str) -> str:
        same = f"memcmp({left}.data, {right}.data, {left}.bits / 8) == 0"
        return f"{left}.bits == {right}.bits && {same}"

    def _equal_aggregates(self, left: ir.Expr, right: ir.Expr) -> Iterator[str]:
        match left.type:
            case ir.Header():
                c_name = self.header(left).home.layout.c_name
                yield f"p4_same_{c_name}({self._pointers(left)}, {self._pointers(right)})"
            case ir.Stack(size=size):
                one, other = self.stack(left), self.stack(right)
                for n in range(size):
                    yield (
                        f"p4_same_{one.layout.c_name}(&{one.text}[{n}], {one.valid}[{n}], "
                        f"&{other.text}[{n}], {other.valid}[{n}])"
                    )
            case ir.Struct(fields=fields):
                for name, type_ in fields:
                    yield from self._equal_aggregates(
                        ir.Member(type_, left, name, pos=left.pos),
                        ir.Member(type_, right, name, pos=right.pos),
                    )
            case _:
                same = ir.Binary(ir.Bool(), "==", left, right, pos=left.pos)
                yield self._equality(same).text

    def _pointers(self, expr: ir.Expr) -> str:
        header = self.header(expr)
        if header.guard is None:
            return f"&{header.home.text}, {header.home.valid}"
        text, valid = header.home.text, header.home.valid
        zero = f"&p4_zero_{header.home.layout.c_name}"
        return f"({header.guard} ? &{text} : {zero}), ({header.guard} ? {valid} : 0)"

    # ----------------------------------------------------------------- parser errors

    def checks(self, expr: ir.Expr, guards: tuple[str, ...] = ()) -> Iterator[ParserCheck]:
        """Yield the checks for parser errors that evaluating `expr` requires, in order of evaluation."""
        match expr:
            case ir.Lookahead(type=ir.Bits(width=width), skip=skip):
                yield ParserCheck(guards, f"(size_t)(end - at) < {skip + (width + 7) // 8}", "PacketTooShort")
            case ir.Next(base=base):
                stack = self.stack(base)
                yield ParserCheck(guards, f"{stack.next} >= {stack.size}", "StackOutOfBounds")
            case ir.Last(base=base):
                yield ParserCheck(guards, f"{self.stack(base).next} == 0", "StackOutOfBounds")
            case ir.Binary(op="&&" | "||" as op, left=left, right=right):
                yield from self.checks(left, guards)
                guard = self.value(left).text if op == "&&" else f"!{self.value(left).text}"
                yield from self.checks(right, (*guards, guard))
            case ir.Mux(condition=condition, then=then, otherwise=otherwise):
                yield from self.checks(condition, guards)
                guard = self.value(condition).text
                yield from self.checks(then, (*guards, guard))
                yield from self.checks(otherwise, (*guards, f"!{guard}"))
            case ir.Member(base=base) | ir.Slice(base=base):
                yield from self.checks(base, guards)
            case ir.Index(index=index):
                yield from self.checks(index, guards)
            case ir.Unary(operand=operand) | ir.Cast(operand=operand):
                yield from self.checks(operand, guards)
            case ir.Binary(left=left, right=right):
                yield from self.checks(left, guards)
                yield from self.checks(right, guards)
            case ir.IsValid(header=header):
                yield from self.checks(header, guards)
            case _:
                pass


def _element(stack: StackHome, index: str) -> HeaderHome:
    return HeaderHome(stack.layout, f"{stack.text}[{index}]", f"{stack.valid}[{index}]", None)


def load_bytes(at: str, count: int, bits: int) -> str:
    """Return C text that loads `count` bytes, most significant first, into a `bits`-bit integer."""
    match count:
        case 1:
            text = f"{at}[0]" if at.isidentifier() else at.replace(" + ", "[") + "]"
        case 2 | 4:
            text = f"p4_load{8 * count}({at})"
        case 6 | 8:
            text = f"p4_load{8 * count}({at})"
        case _ if count < 8:
            text = f"p4_load({at}, {count})"
        case _:
            text = f"p4_load_wide({at}, {count})"
    natural = 32 if count in (1, 2, 4) else (64 if count <= 8 else 128)
    return text if natural == bits else f"({c_integer(bits)}){text}"
