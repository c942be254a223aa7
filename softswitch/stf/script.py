"""Parse STF scripts into statements.

One statement per line; ``#`` starts a comment; keywords are case-insensitive::

    packet PORT HEX…                          send a packet
    expect PORT [HEX… [$]]                    a packet leaves at the port: a digit may be *, $ forbids more
                                              bytes; without digits, any packets may leave at the port
    no_packet                                 no packets leave, at any port, except expected ones
    wait                                      all packets sent so far have passed (always true here)
    add TABLE [PRIORITY] KEY:VALUE… ACTION(NAME:VALUE, …) [= LABEL]
    setdefault TABLE ACTION(NAME:VALUE, …)
    remove all                                remove the entries of all tables
    check_counter NAME(INDEX or $LABEL) [packets|bytes == NUMBER]      or !=, <, <=, >, >=

and commands of BMv2's own control program, such as ``mc_mgrp_create 1`` (see `COMMANDS`). A value is
decimal, ``0x…`` or ``0b…``, with ``*`` for "don't care" digits, ``value/prefix length``, or
``lowest->highest``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


class ScriptError(Exception):
    """A script is wrong at `line`: it is malformed, or names an object that the program does not have."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message, line)
        self.message = message
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class ScriptOperand:
    """A value to match, written with `digits` bits. `mask` has a 1 for each given bit and a 0 for each ``*``.

    A decimal number has no ``*``, and its `digits` is 0. `prefix` is the prefix length in bits, if given.
    With `high`, the operand is the range from `value` to `high`, both included.
    """

    value: int
    mask: int
    digits: int
    prefix: int | None = None
    high: int | None = None

    @property
    def whole(self) -> bool:
        """True if every digit is given."""
        return self.digits == 0 or self.mask == (1 << self.digits) - 1


@dataclass(frozen=True, slots=True)
class AtLine:
    """A statement of a script, with the number of its line."""

    line: int


@dataclass(frozen=True, slots=True)
class PacketLine(AtLine):
    """Send `data` into `port`."""

    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Expect(AtLine):
    """A packet whose first hexadecimal digits are `digits` leaves at `port`.

    With `exact`, the packet has no further digits. If `digits` is None, any packets may leave at the port.
    """

    port: int
    digits: str | None
    exact: bool = False


@dataclass(frozen=True, slots=True)
class NoPacket(AtLine):
    """No packet leaves at any port except expected ones, in the whole script."""


@dataclass(frozen=True, slots=True)
class Wait(AtLine):
    """Wait until all packets that were sent have passed."""


@dataclass(frozen=True, slots=True)
class Add(AtLine):
    """Insert a table entry; `label` names it for `CheckCounter`."""

    table: str
    priority: int | None
    matches: tuple[tuple[str, ScriptOperand], ...]
    action: str
    args: tuple[tuple[str, int], ...]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class SetDefault(AtLine):
    """Set the default action of a table."""

    table: str
    action: str
    args: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Remove(AtLine):
    """Remove the entries of all tables."""


@dataclass(frozen=True, slots=True)
class CheckCounter(AtLine):
    """Compare a counter with `number`.

    If `index` is a number, the counter is a cell of an array. If `index` is a label, the counter is the
    direct counter of the entry with this label.
    """

    counter: str
    index: int | str
    kind: str
    relation: str
    number: int


@dataclass(frozen=True, slots=True)
class ScriptCommand(AtLine):
    """A command of BMv2's control program; `name` is the object it concerns, "" if it concerns none."""

    command: str
    name: str
    numbers: tuple[int, ...] = ()
    rates: tuple[tuple[float, int], ...] = ()


Statement = PacketLine | Expect | NoPacket | Wait | Add | SetDefault | Remove | CheckCounter | ScriptCommand

ANY = 1 << 30
# For each command: whether it has a name, how many numbers (minimum, maximum), whether it has rates.
COMMANDS: dict[str, tuple[bool, int, int, bool]] = {
    "mirroring_add": (False, 2, 2, False),
    "mirroring_add_mc": (False, 2, 2, False),
    "mirroring_delete": (False, 1, 1, False),
    "mirroring_get": (False, 1, 1, False),
    "mc_mgrp_create": (False, 1, 1, False),
    "mc_node_create": (False, 1, ANY, False),
    "mc_node_update": (False, 1, ANY, False),
    "mc_node_associate": (False, 2, 2, False),
    "counter_read": (True, 1, 1, False),
    "counter_write": (True, 3, 3, False),
    "register_read": (True, 1, 1, False),
    "register_write": (True, 2, 2, False),
    "register_reset": (True, 0, 0, False),
    "meter_get_rates": (True, 1, 1, False),
    "meter_set_rates": (True, 1, 1, True),
    "meter_array_set_rates": (True, 0, 0, True),
}
RELATIONS = ("==", "!=", "<=", ">=", "<", ">")

_TOKEN = re.compile(
    r"""\s*(?: (?P<number>0[xX][0-9a-fA-F*]+ | 0[bB][01*]+ | \d+(?:\.\d+)?)
             | (?P<word>[A-Za-z_$][A-Za-z_$0-9]*) | "(?P<quoted>[^"]+)"
             | (?P<sign>==|!=|<=|>=|->|[<>:,./()\[\]=]) )""",
    re.VERBOSE,
)


def parse_script(text: str) -> list[Statement]:
    """Return the statements of a script. Raises ScriptError at the first invalid line."""
    statements: list[Statement] = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.partition("#")[0].strip()
        if line:
            statements.append(_statement(line, number))
    return statements


def _statement(line: str, number: int) -> Statement:
    keyword, _, rest = line.partition(" ")
    keyword = keyword.lower()
    if "\t" in keyword:
        keyword, _, more = keyword.partition("\t")
        rest = f"{more} {rest}"
    if keyword in ("packet", "expect"):
        return _packet(keyword, rest.split(), number)
    tokens = _Tokens(rest, number)
    if keyword in COMMANDS:
        found: Statement = _command(keyword, tokens)
    elif keyword in _PARSERS:
        found = _PARSERS[keyword](tokens)
    else:
        known = ", ".join(("packet", "expect", *_PARSERS, *COMMANDS))
        raise ScriptError(f"unknown statement {keyword!r}; there are {known}", number)
    tokens.end()
    return found


def _packet(keyword: str, words: list[str], line: int) -> PacketLine | Expect:
    if not words or not words[0].isdecimal():
        raise ScriptError(f"{keyword} {words[0] if words else ''}: the number of a port comes first", line)
    port, digits = int(words[0]), "".join(words[1:]).upper()
    exact = keyword == "expect" and digits.endswith("$")
    digits = digits[:-1] if exact else digits
    allowed = "0123456789ABCDEF" + "*" * (keyword == "expect")
    wrong = next((digit for digit in digits if digit not in allowed), None)
    if wrong is not None:
        raise ScriptError(f"{wrong!r} is not a digit of a packet; want {allowed}", line)
    if keyword == "expect":
        return Expect(line, port, digits or None, exact)
    if len(digits) % 2 or not digits:
        raise ScriptError(f"a packet of {len(digits)} digits; want two for each byte", line)
    return PacketLine(line, port, bytes.fromhex(digits))


class _Tokens:
    """The tokens (words, numbers, signs) of a line after its keyword, read one after the other."""

    def __init__(self, text: str, line: int) -> None:
        self.line = line
        self._kinds: list[tuple[str, str]] = []
        at = 0
        text = text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ScriptError(f"{text[at:]!r} is neither name, number nor sign", line)
            kind = match.lastgroup or ""
            self._kinds.append(("word" if kind == "quoted" else kind, match[kind]))
            at = match.end()
        self._at = 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        """Return the token that is `ahead` tokens after the next one, as (kind, text).

        The token remains to be read. Past the end of the line, return ("", "").
        """
        at = self._at + ahead
        return self._kinds[at] if at < len(self._kinds) else ("", "")

    def take(self, kind: str, what: str) -> str:
        """Read the next token and return its text. Raises ScriptError if the token is not of `kind`."""
        found, text = self.peek()
        if found != kind:
            raise ScriptError(f"{text or 'the end of the line'} where {what} is expected", self.line)
        self._at += 1
        return text

    def sign(self, sign: str) -> bool:
        """Skip `sign` if it comes next; return True if it did."""
        if self.peek() != ("sign", sign):
            return False
        self._at += 1
        return True

    def want(self, sign: str) -> None:
        """Skip `sign`, which must come next. Raises ScriptError."""
        if not self.sign(sign):
            raise ScriptError(
                f"{self.peek()[1] or 'the end of the line'} where {sign} is expected", self.line
            )

    def end(self) -> None:
        """Raise ScriptError unless this is the end of the line."""
        if self.peek() != ("", ""):
            raise ScriptError(f"{self.peek()[1]!r} after the end of the statement", self.line)

    def name(self) -> str:
        """Return a qualified name, such as ``hdr.stack[1].f``."""
        text = self.take("word", "a name")
        while True:
            if self.sign("."):
                text += "." + self.take("word", "a name")
            elif self.sign("["):
                text += f"[{self.take('number', 'an index')}]"
                self.want("]")
            else:
                return text

    def integer(self) -> int:
        """Return a number."""
        return _operand(self.take("number", "a number"), self.line).value

    def operand(self) -> ScriptOperand:
        """Parse and return a value to match, with a prefix length or as a range if it has one."""
        value = _operand(self.take("number", "a value"), self.line)
        if self.sign("/"):
            return ScriptOperand(value.value, value.mask, value.digits, self.integer())
        if self.sign("->"):
            return ScriptOperand(value.value, value.mask, value.digits, high=self.integer())
        return value


def _operand(text: str, line: int) -> ScriptOperand:
    bits = {"x": 4, "b": 1}.get(text[1:2].lower())
    if bits is None:
        if not text.isdecimal():
            raise ScriptError(f"{text} is not a whole number", line)
        return ScriptOperand(int(text), 0, 0)
    base, digits = 1 << bits, text[2:]
    ones = base - 1
    value = mask = 0
    for digit in digits:
        value = value << bits | (0 if digit == "*" else int(digit, base))
        mask = mask << bits | (0 if digit == "*" else ones)
    return ScriptOperand(value, mask, bits * len(digits))


def _arguments(tokens: _Tokens) -> tuple[tuple[str, int], ...]:
    args: list[tuple[str, int]] = []
    tokens.want("(")
    while not tokens.sign(")"):
        if args:
            tokens.want(",")
        name = tokens.take("word", "the name of a parameter")
        tokens.want(":")
        args.append((name, tokens.integer()))
    return tuple(args)


def _add(tokens: _Tokens) -> Add:
    table = tokens.name()
    priority = tokens.integer() if tokens.peek()[0] == "number" else None
    matches: list[tuple[str, ScriptOperand]] = []
    name = tokens.name()
    while tokens.sign(":"):
        matches.append((name, tokens.operand()))
        name = tokens.name()
    args = _arguments(tokens)
    label = tokens.take("word", "a label").lstrip("$") if tokens.sign("=") else None
    return Add(tokens.line, table, priority, tuple(matches), name, args, label)


def _set_default(tokens: _Tokens) -> SetDefault:
    table = tokens.name()
    return SetDefault(tokens.line, table, tokens.name(), _arguments(tokens))


def _remove(tokens: _Tokens) -> Remove:
    if tokens.take("word", "all").lower() != "all":
        raise ScriptError("remove takes one word: all", tokens.line)
    return Remove(tokens.line)


def _check_counter(tokens: _Tokens) -> CheckCounter:
    counter = tokens.name()
    tokens.want("(")
    index: int | str
    index = tokens.take("word", "a label").lstrip("$") if tokens.peek()[0] == "word" else tokens.integer()
    tokens.want(")")
    if tokens.peek() == ("", ""):
        return CheckCounter(tokens.line, counter, index, "packets", "==", 0)
    kind = tokens.take("word", "packets or bytes").lower()
    if kind not in ("packets", "bytes"):
        raise ScriptError(f"{kind!r}: a counter counts packets or bytes", tokens.line)
    relation = tokens.take("sign", "a comparison")
    if relation not in RELATIONS:
        raise ScriptError(f"{relation!r} is not a comparison; want {' '.join(RELATIONS)}", tokens.line)
    return CheckCounter(tokens.line, counter, index, kind, relation, tokens.integer())


def _command(keyword: str, tokens: _Tokens) -> ScriptCommand:
    named, least, most, rated = COMMANDS[keyword]
    name = tokens.name() if named else ""
    numbers: list[int] = []
    rates: list[tuple[float, int]] = []
    while tokens.peek()[0] == "number":
        if tokens.peek(1) == ("sign", ":"):
            rate = float(tokens.take("number", "a rate"))
            tokens.want(":")
            rates.append((rate, tokens.integer()))
        else:
            numbers.append(tokens.integer())
    if not least <= len(numbers) <= most:
        raise ScriptError(f"{keyword} with {len(numbers)} numbers; want {least}", tokens.line)
    if bool(rates) != rated:
        wanted = "rate:burst for each colour" if rated else "no rates"
        raise ScriptError(f"{keyword} with {len(rates)} rates; want {wanted}", tokens.line)
    return ScriptCommand(tokens.line, keyword, name, tuple(numbers), tuple(rates))


_PARSERS: dict[str, Callable[[_Tokens], Statement]] = {
    "add": _add,
    "setdefault": _set_default,
    "remove": _remove,
    "check_counter": _check_counter,
    "no_packet": lambda tokens: NoPacket(tokens.line),
    "wait": lambda tokens: Wait(tokens.line),
}
