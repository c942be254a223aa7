"""The base of all parts of the parser: the token cursor, backtracking, names of types in scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend.lexer import KEYWORDS, Token
from softswitch.compiler.ir import Position

T = TypeVar("T")


class Cursor:
    """A place in a list of tokens.

    Whether ``(a) - b`` is a cast depends on whether ``a`` is a type, so the names of types
    in scope are known here. All other such questions are answered by looking ahead.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self.token = tokens[0]
        self.types: frozenset[str] = frozenset()

    def next_token(self) -> Token:
        """Return the token behind the current one."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def advance(self) -> Token:
        """Step over the current token and return it."""
        token = self.token
        if token.kind != "end":
            self._at += 1
            self.token = self._tokens[self._at]
        return token

    def fail(self, expected: str) -> NoReturn:
        """Raise the error that the current token is not what was expected."""
        raise self.failure(expected)

    def failure(self, expected: str) -> CompileError:
        """Return the error that the current token is not what was expected."""
        match self.token.kind:
            case "end":
                message = "the file ends too early"
            case "unknown":
                message = f"unexpected character {self.token}"
            case _:
                message = f"unexpected {self.token}"
        return CompileError(message, self.token.pos, expected)

    def accept(self, kind: str) -> Token | None:
        """Step over the current token if it is of this kind."""
        return self.advance() if self.token.kind == kind else None

    def accept_word(self, word: str) -> Token | None:
        """Step over the current token if it is this keyword, which elsewhere may be a name."""
        return self.advance() if self.token.kind == "id" and self.token.text == word else None

    def expect(self, kind: str, where: str) -> Token:
        """Step over a token of this kind; `where` completes the error message."""
        if self.token.kind != kind:
            self.fail(f"'{kind}' {where}")
        return self.advance()

    def name(self, what: str) -> Token:
        """Step over a name; `what` it is of completes the error message."""
        if self.token.kind != "id":
            self.fail(f"{what}; {self.token} is a keyword" if self.token.kind in KEYWORDS else what)
        return self.advance()

    def semicolon(self, what: str) -> None:
        """Step over the semicolon that ends `what`."""
        if self.token.kind != ";":
            last = self._tokens[self._at - 1]
            if (last.pos.file, last.pos.line) != (self.token.pos.file, self.token.pos.line):
                # It is missed where it belongs, not at the beginning of the next line.
                behind = Position(last.pos.file, last.pos.line, last.pos.column + len(last.text))
                raise CompileError("a semicolon is missing", behind, f"';' at the end of {what}")
            self.fail(f"';' at the end of {what}")
        self.advance()

    def attempt(self, parse: Callable[[], T]) -> T | None:
        """Return the result of `parse`; step back to here if that is None or an error."""
        at, token = self._at, self.token
        result: T | None
        try:
            result = parse()
        except CompileError:
            result = None
        if result is None:
            self._at, self.token = at, token
        return result

    def comma_separated(
        self, item: Callable[[], T], close: str, where: str, *, trailing: bool = False
    ) -> tuple[T, ...]:
        """Parse any number of items, then the closing token; with `trailing`, a comma may precede that."""
        if self.accept(close):
            return ()
        items = [item()]
        while self.accept(","):
            if trailing and self.token.kind == close:
                break
            items.append(item())
        if self.token.kind != close:
            self.fail(f"',' or '{close}' {where}")
        self.advance()
        return tuple(items)

    def until(self, item: Callable[[], T], close: str) -> tuple[T, ...]:
        """Parse items up to the closing token and step over that."""
        items: list[T] = []
        while self.token.kind != close:
            items.append(item())
        self.advance()
        return tuple(items)

    def braced(self, item: Callable[[], T], where: str) -> tuple[T, ...]:
        """Parse ``{ items }``."""
        self.expect("{", where)
        return self.until(item, "}")

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end which names were declared inside."""
        types = self.types
        yield
        self.types = types

    def declare_type(self, name: str) -> None:
        """Let `name` mean a type from here on."""
        self.types |= {name}

    def declare_object(self, name: str) -> None:
        """Let `name` mean something else than a type from here on."""
        if name in self.types:
            self.types -= {name}
