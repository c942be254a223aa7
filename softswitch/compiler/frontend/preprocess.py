"""The C preprocessor before the compiler: combines files into one text with line markers.

pcpp does the preprocessing. This module finds the files, turns pcpp's messages into CompileErrors, and
writes the tokens so that each keeps its line and column: a token from the source keeps its column, and
the expansion of a macro follows a marker with the position of the macro's use (see
`softswitch.compiler.frontend.lexer`).
"""

from __future__ import annotations

import bisect
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pcpp

from softswitch.compiler.errors import CompileError, read_source
from softswitch.compiler.frontend.lexer import MARKER
from softswitch.compiler.ir import Position

STANDARD_INCLUDES = Path(__file__).parents[1] / "include"

_PARTS_OF_TOFINO = re.compile(r"tofino([12])_(arch|base|specs)\.p4")
"""Files that programs for Tofino may include instead of tna.p4 or t2na.p4."""

_MAX_INCLUDE_DEPTH = 64
_MAX_BLANK_LINES = 8
_NEEDS_ARGUMENT = frozenset(["define", "undef", "include", "if", "elif", "ifdef", "ifndef"])
_MARKERS = frozenset(["line", "pragma", "warning"])
"""Directives that are accepted but not executed; line markers such as ``# 7`` are treated the same way."""


def preprocess(
    text: str,
    name: str,
    *,
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str | Path] = (),
    preprocessed: bool = False,
    read: Callable[[Path], str] = read_source,
) -> str:
    """Return `text`, the content of the file `name`, with includes inserted and macros expanded.

    Included files are searched in `include_dirs`, then among the standard includes; a file in quotes is first
    searched in the folder of the file that includes it. The result needs no other file. Preprocessing the
    result again gives the same tokens at the same positions.

    Set `preprocessed` for a text from a user who must not read this machine's files: then all directives
    except line markers are errors. `read` is called with each possible path of an included file, in turn,
    until one call returns the file's text; it raises OSError for a missing file.

    Raises CompileError, at the directive, for a missing file, a malformed directive and ``#error``.
    """
    directories = [*map(Path, include_dirs), STANDARD_INCLUDES]
    preprocessor = _Preprocessor(name, directories, inert=preprocessed, read=read)
    for macro, value in (defines or {}).items():
        preprocessor.define(f"{macro} {value}")
    preprocessor.parse(text, name)
    return _Writer().write(preprocessor.placed())


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of the output; `expanded` is True if it comes from a macro."""

    text: str
    pos: Position
    expanded: bool
    spaced: bool  # white space precedes it


@dataclass(slots=True)
class _Source:
    """A file being read: its lines, and the positions given by its own line markers."""

    display: str
    lines: list[str]
    starts: list[int]
    # Physical line of each marker; position of the line after it (column 0: columns stay unchanged).
    marked: list[int] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)

    @classmethod
    def of(cls, display: str, text: str) -> _Source:
        # pcpp strips the lines, so their offsets are those of stripped lines.
        lines = [line.rstrip() for line in text.splitlines()]
        starts: list[int] = []
        offset = 0
        source = cls(display, lines, starts)
        file = display
        for number, line in enumerate(lines, 1):
            starts.append(offset)
            offset += len(line) + 1
            if "#" in line and (marker := MARKER.match(line)):
                file = marker[3] if marker[3] is not None else file
                source.marked.append(number)
                fixed = int(marker[4] or 0) if marker[1] else 0
                source.positions.append(Position(file, int(marker[2]), fixed))
        return source

    def position(self, line: int, column: int) -> tuple[Position, bool]:
        """Return the source position of the place (`line`, `column`) of this file, as line markers state it.

        The second result is True if the position's column comes from a marker, False if it is `column`.
        """
        at = bisect.bisect_left(self.marked, line) - 1
        if at < 0:
            return Position(self.display, line, column), False
        base = self.positions[at]
        if base.column:
            return base, True
        return Position(base.file, base.line + line - self.marked[at] - 1, column), False


class _Preprocessor(pcpp.Preprocessor):  # type: ignore[misc]  # pcpp has no types
    """pcpp with this compiler's rules for finding files; its messages become exceptions."""

    def __init__(
        self, name: str, directories: Sequence[Path], *, inert: bool, read: Callable[[Path], str]
    ) -> None:
        super().__init__()
        self._inert = inert
        self._read = read
        self.line_directive = None
        # Without rewriting, the source of each token is the absolute path of its file.
        self.rewrite_paths: list[tuple[str, str]] = []
        self._top = name
        self._directories = directories
        self._sources: dict[str, _Source] = {}
        self._directive = Position(name, 1, 1)
        self._argument = self._directive
        for directory in directories:
            self.path.append(str(directory))

    def parsegen(self, text: str, source: str | None = None, abssource: str | None = None) -> Iterator[Any]:
        """Preprocess one file (pcpp's entry point for the main file and each included file)."""
        assert abssource is not None
        self._sources[abssource] = _Source.of(self._display(Path(abssource)), text)
        if self.include_depth > _MAX_INCLUDE_DEPTH:
            raise CompileError("files include each other without end", self._argument)
        # pcpp fails on a comment that ends the file without a newline.
        yield from super().parsegen(text + "\n", source, abssource)

    def _display(self, path: Path) -> str:
        """Return the name of the file `path` for error messages.

        Names of files below the main file's folder begin with this folder as the user named it.
        """
        top = Path(os.path.abspath(self._top))  # noqa: PTH100 - as pcpp does, also for "a/../b"
        if path == top:
            return self._top
        if path.is_relative_to(top.parent):
            return str(Path(self._top).parent / path.relative_to(top.parent))
        return str(path)

    def _place(self, token: Any) -> tuple[Position, bool]:
        source = self._sources[token.source]
        return source.position(token.lineno, token.lexpos - source.starts[token.lineno - 1] + 1)

    def _next(self) -> Any:
        try:
            return self.token()
        except (LookupError, AttributeError, TypeError, ValueError):
            # Checks of directives that pcpp omits.
            raise CompileError("malformed directive", self._directive) from None

    def placed(self) -> Iterator[_Token]:
        """Yield the tokens of the output with their positions."""
        spaced = False
        file, line, used_column = "", 0, 0
        while (token := self._next()) is not None:
            if token.type in self.t_WS or not token.value.strip():
                spaced = True
                continue
            expanded = bool(getattr(token, "expanded_from", None))
            if expanded:
                # pcpp gives the line of the macro's use; the column is the macro name's.
                if (token.source, token.lineno) != (file, line):
                    used_column = 0
                source = self._sources[token.source]
                found = re.compile(rf"\b{re.escape(token.expanded_from[-1])}\b").search(
                    source.lines[token.lineno - 1], used_column
                )
                column = found.start() + 1 if found else used_column + 1
                pos, fixed = source.position(token.lineno, column)
            else:
                pos, fixed = self._place(token)
                used_column = token.lexpos - self._sources[token.source].starts[token.lineno - 1]
            file, line = token.source, token.lineno
            yield _Token(token.value, pos, expanded or fixed, spaced)
            spaced = False

    # ----------------------------------------------------------------- hooks of pcpp

    def on_error(self, file: str, line: int, message: str) -> None:
        if message.startswith("Could not evaluate"):
            raise CompileError("the condition cannot be evaluated", self._argument, "an integer expression")
        source = self._sources.get(file)
        pos = source.position(line, 1)[0] if source else self._directive
        raise CompileError((message[:1].lower() + message[1:]).strip(), pos)

    def on_file_open(self, is_system_include: bool, path: str) -> io.StringIO:
        file = Path(path)
        if file.parent == STANDARD_INCLUDES and (part := _PARTS_OF_TOFINO.fullmatch(file.name)):
            whole = {"1": "tna.p4", "2": "t2na.p4"}[part[1]] if part[2] == "arch" else "tofino_base.p4"
            version = f"#ifndef __TARGET_TOFINO__\n#define __TARGET_TOFINO__ {part[1]}\n#endif\n"
            return io.StringIO(f'{version}#include "{whole}"\n')
        return io.StringIO(self._read(file))

    def on_include_not_found(self, malformed: bool, is_system: bool, directory: str, name: str) -> None:
        if malformed:
            raise CompileError(f"malformed #include of {name}", self._argument, '"file" or <file>')
        searched = [*([] if is_system else [directory or "."]), *map(str, self._directories[:-1])]
        places = " or ".join([*searched, "the standard includes (core.p4, v1model.p4)"])
        raise CompileError(f"the included file '{name}' is not found", self._argument, f"a file in {places}")

    def on_directive_handle(
        self, directive: Any, tokens: list[Any], if_passthru: bool, preceding: list[Any]
    ) -> bool:
        super().on_directive_handle(directive, tokens, if_passthru, preceding)
        self._directive = self._place(directive)[0]
        if self._inert and directive.value not in _MARKERS and not directive.value.isdigit():
            raise CompileError(f"a #{directive.value} in preprocessed source", self._directive)
        self._argument = self._place(tokens[0])[0] if tokens else self._directive
        if not tokens and directive.value in _NEEDS_ARGUMENT:
            raise CompileError(f"#{directive.value} lacks its argument", self._directive)
        return True

    def on_directive_unknown(
        self, directive: Any, tokens: list[Any], if_passthru: bool, preceding: list[Any]
    ) -> bool:
        pos = self._place(directive)[0]
        if directive.value == "error":
            text = "".join(token.value for token in tokens).strip().strip('"')
            raise CompileError(f"#error: {text}", pos)
        if directive.value in _MARKERS or directive.value.isdigit():
            return True  # line markers are known from reading the file
        raise CompileError(f"unknown directive '#{directive.value}'", pos)


class _Writer:
    """Writes tokens as text at their positions."""

    def __init__(self) -> None:
        self._out: list[str] = []
        # Position of the next character; if the file is None, a marker must be written first.
        self._file: str | None = None
        self._line = 0
        self._column = 1

    def write(self, tokens: Iterator[_Token]) -> str:
        run: list[_Token] = []
        for token in tokens:
            if run and (not token.expanded or token.pos != run[0].pos):
                self._expansion(run)
                run = []
            if token.expanded:
                run.append(token)
            else:
                self._place(token)
        if run:
            self._expansion(run)
        self._out.append("\n")
        return "".join(self._out).lstrip("\n")

    def _new_line(self, text: str, first: _Token) -> None:
        if first.text.startswith("#"):
            raise CompileError("unexpected '#'", first.pos)  # it would become a directive
        self._out.append(text)

    def _place(self, token: _Token) -> None:
        """Write a token at its own line and column."""
        pos = token.pos
        lines = pos.line - self._line
        # The expansion of a macro may be longer than its name.
        fits = lines or pos.column >= self._column + token.spaced
        if pos.file != self._file or not 0 <= lines <= _MAX_BLANK_LINES or not fits:
            self._new_line(f'\n#line {pos.line} "{pos.file}"\n', token)
            self._file, self._line, self._column = pos.file, pos.line, 1
        elif lines:
            self._new_line("\n" * lines, token)
            self._line, self._column = pos.line, 1
        self._out.append(" " * (pos.column - self._column))
        self._out.append(token.text)
        self._column = pos.column + len(token.text)

    def _expansion(self, run: list[_Token]) -> None:
        """Write the tokens of a macro's expansion, which all have the position of the macro's use."""
        if len(run) == 1:
            self._place(run[0])
            return
        pos = run[0].pos
        self._new_line(f'\n#line {pos.line} "{pos.file}" {pos.column}\n', run[0])
        self._out.append(run[0].text)
        self._out.extend(f" {token.text}" if token.spaced else token.text for token in run[1:])
        self._file = None
