"""Split text into tokens, each with its position in the file that the line markers name.

A line marker is ``#line 7 "file"`` or ``# 7 "file"``: the line after the marker is line 7 of ``file``. A
marker of this compiler's preprocessor may also state a column, as in ``#line 7 "file" 12``. Then all tokens
up to the next marker have the position line 7, column 12: they are the expansion of a macro at that position.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from softswitch.compiler.errors import CompileError, unescape
from softswitch.compiler.ir import Position
from softswitch.compiler.ir.fold import bounded

# Words that cannot be names. ``actions apply entries key list priority state type`` are
# keywords only where the grammar expects them.
_WORDS = """abstract action bit bool break const continue control default else enum error exit extern
    false for header header_union if in inout int match_kind out package parser return select
    string struct switch table this transition true tuple typedef value_set varbit void _"""
KEYWORDS = frozenset(_WORDS.split())

# Longest first. ``>>`` is left to the parser: in ``register<bit<32>>`` it is not a shift.
_OPERATORS = """|+|= |-|= <<= >>= &&& ... |+| |-| {#} += -= *= /= %= &= |= ^= << && || == != >= <= ++ +: ..
    + - * / % | & ^ ~ ( ) [ ] { } < > ! : , ? . = ; @"""
_OPERATOR = "|".join(re.escape(operator) for operator in _OPERATORS.split())

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\f\v]+|//[^\n]*)
    | (?P<comment>/\*.*?\*/)
    | (?P<newline>\n(?:[ \t]*\#[^\n]*)?)
    | (?P<number>[0-9]+[ws]0[xX][0-9a-fA-F_]+ | [0-9]+[ws]0[dD][0-9_]+ | [0-9]+[ws]0[oO][0-7_]+
            | [0-9]+[ws]0[bB][01_]+ | [0-9]+[ws][0-9_]+
            | 0[xX][0-9a-fA-F_]+ | 0[dD][0-9_]+ | 0[oO][0-7_]+ | 0[bB][01_]+ | [0-9][0-9_]*)
    | (?P<pragma>@pragma[ \t]+(?:[^\n"]|"(?:[^"\\]|\\.)*")*)
    | (?P<id>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<quoted>"(?:[^"\\]|\\.)*")
    | (?P<op>"""
    + _OPERATOR
    + ")|(?P<unknown>.)",
    re.VERBOSE | re.DOTALL,
)
MARKER = re.compile(r'[ \t]*#[ \t]*(?:(line)[ \t]+)?([0-9]+)(?:[ \t]+"([^"\n]*)")?(?:[ \t]+([0-9]+))?')


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    `kind` is ``id``, ``number``, ``quoted``, ``pragma``, ``unknown`` or ``end``; a keyword or operator
    is its own kind. `start` is the token's offset in the text.
    """

    kind: str
    text: str
    pos: Position
    start: int

    def __str__(self) -> str:
        return f"'{self.text}'"


def tokenize(text: str, name: str) -> list[Token]:
    """Return the tokens of `text`, followed by a token of kind ``end``.

    A character that has no meaning in P4 becomes a token of kind ``unknown``, as annotations may contain
    such characters. Raises CompileError for a comment or string without end.
    """
    tokens: list[Token] = []
    append = tokens.append
    # A newline before the text, so that a marker on the first line is found, too.
    text = "\n" + text
    file, line, line_start, column = name, 0, 0, 0
    offset, end = 0, len(text)
    match = _TOKEN.match
    while offset < end:
        found = match(text, offset)
        assert found is not None  # "unknown" matches everything
        kind = found.lastgroup
        start, offset = offset, found.end()
        if kind == "space":
            continue
        if kind == "newline":
            line_start = start + 1
            if not column:
                line += 1
            if offset - start > 1 and (directive := MARKER.match(text, line_start)):
                # The marker's own line counts as the line before.
                line = int(directive[2]) - 1
                file = directive[3] if directive[3] is not None else file
                # A marker without ``line`` ends with flags of the C preprocessor, not with a column.
                column = int(directive[4] or 0) if directive[1] else 0
                if column:
                    line += 1
            continue
        word = found.group()
        if kind != "comment":
            pos = Position(file, line, column or start - line_start + 1)
            if word == '"':
                raise CompileError("this string has no end", pos, "'\"'")
            if word == "/" and text.startswith("*", offset):
                raise CompileError("this comment has no end", pos, "'*/'")
            if kind is None or kind == "op" or word in KEYWORDS:
                kind = word
            append(Token(kind, word, pos, start))
        if "\n" in word:
            line += 0 if column else word.count("\n")
            line_start = start + word.rindex("\n") + 1
    append(Token("end", "", Position(file, line, column or offset - line_start + 1), offset))
    return tokens


def integer(token: Token) -> tuple[int, int | None, bool]:
    """Return value, width (None if not given) and signedness of a ``number`` token."""
    text = token.text.replace("_", "")
    width, signed = None, False
    if split := re.match(r"([0-9]+)([ws])", text):
        width, signed = _decimal(split[1], token), split[2] == "s"
        text = text[split.end() :]
    base = {"0x": 16, "0d": 10, "0o": 8, "0b": 2}.get(text[:2].lower())
    digits = text[2:] if base else text
    if not digits:
        raise CompileError(f"the number {token} has no digits", token.pos)
    value = int(digits, base) if base and base != 10 else _decimal(digits, token)
    return bounded(value, token.pos), width, signed


def _decimal(digits: str, token: Token) -> int:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        raise CompileError("the number has too many digits", token.pos) from None


def string(token: Token) -> str:
    """Return the value of a ``quoted`` token."""
    return unescape(token.text)
