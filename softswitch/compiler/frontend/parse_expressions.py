"""Parse annotations, types and expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import NoReturn, TypeVar

from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast
from softswitch.compiler.frontend.lexer import KEYWORDS, Token, integer, string
from softswitch.compiler.ir import Position

T = TypeVar("T")


class Cursor:
    """A position in a list of tokens, from which the parser reads.

    Whether ``(a) - b`` is a cast depends on whether ``a`` is a type, so the names of types
    in scope are kept here. The parser resolves all other ambiguities by lookahead.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self.token = tokens[0]
        self.types: frozenset[str] = frozenset()

    def next_token(self) -> Token:
        """Return the token after the current one."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def advance(self) -> Token:
        """Step over the current token and return it."""
        token = self.token
        if token.kind != "end":
            self._at += 1
            self.token = self._tokens[self._at]
        return token

    def fail(self, expected: str) -> NoReturn:
        """Raise the error for an unexpected current token."""
        raise self.failure(expected)

    def failure(self, expected: str) -> CompileError:
        """Return the error for an unexpected current token."""
        match self.token.kind:
            case "end":
                message = "the file ends too early"
            case "unknown":
                message = f"unexpected character {self.token}"
            case _:
                message = f"unexpected {self.token}"
        return CompileError(message, self.token.pos, expected)

    def accept(self, kind: str) -> Token | None:
        """Step over the current token and return it if its kind is `kind`; else return None."""
        return self.advance() if self.token.kind == kind else None

    def accept_word(self, word: str) -> Token | None:
        """Step over the current token and return it if it is `word`; else return None.

        `word` is a keyword at this point of the grammar, but a name elsewhere.
        """
        return self.advance() if self.token.kind == "id" and self.token.text == word else None

    def expect(self, kind: str, where: str) -> Token:
        """Step over a token of the kind `kind`, and return it.

        Raises CompileError for another token; `where` completes the message.
        """
        if self.token.kind != kind:
            self.fail(f"'{kind}' {where}")
        return self.advance()

    def name(self, what: str) -> Token:
        """Step over a name, and return its token.

        Raises CompileError for another token; `what` states in the message which name was expected.
        """
        if self.token.kind != "id":
            self.fail(f"{what}; {self.token} is a keyword" if self.token.kind in KEYWORDS else what)
        return self.advance()

    def semicolon(self, what: str) -> None:
        """Step over the semicolon that ends `what`. Raises CompileError if the semicolon is missing."""
        if self.token.kind != ";":
            last = self._tokens[self._at - 1]
            if (last.pos.file, last.pos.line) != (self.token.pos.file, self.token.pos.line):
                # Report the error at the end of the statement, not at the beginning of the next line.
                behind = Position(last.pos.file, last.pos.line, last.pos.column + len(last.text))
                raise CompileError("a semicolon is missing", behind, f"';' at the end of {what}")
            self.fail(f"';' at the end of {what}")
        self.advance()

    def attempt(self, parse: Callable[[], T]) -> T | None:
        """Return the result of `parse`.

        If `parse` fails or returns None, step back to the token before the call, and return None.
        """
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
        """Parse items up to the closing token; with `trailing`, a comma may follow the last item."""
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
        """Parse items up to the closing token, and step over that token."""
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
        """Open a scope; at the end of the ``with`` block, forget the names declared in it."""
        types = self.types
        yield
        self.types = types

    def declare_type(self, name: str) -> None:
        """Declare `name` as a type from here on."""
        self.types |= {name}

    def declare_object(self, name: str) -> None:
        """Declare that `name` is not a type from here on."""
        if name in self.types:
            self.types -= {name}


# Binary operators by precedence; all are left-associative.
# Unlike in C, ``& ^ |`` bind tighter than comparisons.
_LEVELS = ("||", "&&", "== !=", "< > <= >=", "|", "^", "&", "<< >>", "++ + - |+| |-|", "* / %")
_PRECEDENCE = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators.split()}
_UNARY = frozenset("!~-+")
_TYPE_KEYWORDS = frozenset(["bit", "bool", "error", "int", "match_kind", "string", "tuple", "varbit"])
_TYPE_STARTS = _TYPE_KEYWORDS | {"id", ".", "void", "_"}
_TEXTS = frozenset(["name", "deprecated"])
"""Annotations whose body is one string."""
_NEVER_EMPTY = frozenset(["name", "pkginfo"])
"""Annotations that require a body."""
_PRIMARIES = frozenset(["id", "number", ".", "true", "false", "quoted", "this", "error", "{#}", "..."])
_OPERAND_STARTS = frozenset(["id", "number", "quoted", "true", "false", "this", "!", "~", "{", "{#}"])


class ExpressionParser(Cursor):
    """Parses annotations, types and expressions."""

    # Inside the angle brackets of a type, ``>`` is the closing bracket, not an operator.
    _greater_closes = False

    # ----------------------------------------------------------------- annotations

    def annotations(self) -> tuple[ast.SourceAnnotation, ...]:
        """Parse any number of annotations."""
        if self.token.kind not in ("@", "pragma"):
            return ()
        found: list[ast.SourceAnnotation] = []
        while True:
            if token := self.accept("pragma"):
                _, name, *body = token.text.split(None, 2)
                found.append(ast.SourceAnnotation(name, "".join(body).strip(), None, pos=token.pos))
            elif self.accept("@"):
                annotation = self._annotation()
                _check_repeated(annotation, found)
                found.append(annotation)
            else:
                return tuple(found)

    def _annotation(self) -> ast.SourceAnnotation:
        name = self.token
        if name.kind != "id" and name.kind not in KEYWORDS:
            self.fail("the name of an annotation")
        self.advance()
        if name.text in _NEVER_EMPTY and self.token.kind not in ("(", "["):
            raise CompileError(f"@{name.text} has no content", name.pos, f"@{name.text}(…)")
        if self.accept("("):
            tokens: list[Token] = []
            self._balanced(tokens)
            body = _text(name, tokens) if name.text in _TEXTS else _joined(tokens)
            return ast.SourceAnnotation(name.text, body, None, pos=name.pos)
        if self.accept("["):
            first = self._at
            elements = self.comma_separated(self.argument, "]", "in the annotation", trailing=True)
            return ast.SourceAnnotation(
                name.text, _joined(self._tokens[first : self._at - 1]), elements, pos=name.pos
            )
        return ast.SourceAnnotation(name.text, "", None, pos=name.pos)

    def _balanced(self, tokens: list[Token]) -> None:
        """Append tokens to `tokens` up to the ``)`` that closes the ``(`` just read, and skip that ``)``."""
        depth = 1
        while True:
            if self.token.kind == "end":
                self.fail("')' at the end of the annotation")
            depth += {"(": 1, ")": -1}.get(self.token.kind, 0)
            token = self.advance()
            if not depth:
                return
            tokens.append(token)

    # ----------------------------------------------------------------- types

    def at_type_keyword(self) -> bool:
        """Return True if the current token can only be the start of a type."""
        return self.token.kind in _TYPE_KEYWORDS or (
            self.token.kind == "id" and self.token.text == "list" and self.next_token().kind == "<"
        )

    def type_ref(self) -> ast.TypeRef:
        """Parse a type (without void)."""
        parsed = self._element_type()
        return self.stack_sizes(parsed)

    def stack_sizes(self, element: ast.TypeRef) -> ast.TypeRef:
        """Parse the ``[size]`` that may follow a type or a declared name."""
        sizes = []
        while token := self.accept("["):
            sizes.append((self.bracketed(), token.pos))
            self.expect("]", "after the size of a stack")
        for size, pos in reversed(sizes):
            element = ast.StackTypeRef(element, size, pos=pos)
        return element

    def typed_name(self, what: str, element: ast.TypeRef | None = None) -> tuple[ast.TypeRef, Token]:
        """Parse a type, unless it is given, and a name; sizes of a stack may follow the name."""
        type_ref = self.type_ref() if element is None else element
        name = self.name(what)
        return self.stack_sizes(type_ref), name

    def bracketed(self) -> ast.Expr:
        """Parse an expression in ``[…]`` or ``(…)``, where ``>`` is an operator even inside ``<…>``."""
        outer, self._greater_closes = self._greater_closes, False
        parsed = self.expression()
        self._greater_closes = outer
        return parsed

    def _element_type(self) -> ast.TypeRef:
        token = self.token
        kind = token.kind
        if kind in ("id", "."):
            return self._named_type()
        if kind not in _TYPE_KEYWORDS:
            self.fail("a type")
        self.advance()
        match kind:
            case "bool" | "error" | "match_kind" | "string":
                return ast.BasicType(kind, pos=token.pos)
            case "tuple":
                self.expect("<", "after 'tuple'")
                return ast.TupleType(self._type_args(), pos=token.pos)
            case "varbit":
                self.expect("<", "after 'varbit'")
                return ast.VarbitType(self._width(), pos=token.pos)
            case "bit" if self.token.kind != "<":
                return ast.BitsType(ast.IntLiteral(1, None, False, pos=token.pos), False, pos=token.pos)
            case "int" if self.token.kind != "<":
                return ast.BasicType(kind, pos=token.pos)
        self.advance()
        return ast.BitsType(self._width(), kind == "int", pos=token.pos)

    def refuse_width(self) -> None:
        """Raise CompileError if the next tokens are a name and a width: only keyword types have widths."""
        token = self.token
        if [it.kind for it in self._tokens[self._at : self._at + 3]] == ["id", "<", "number"]:
            raise CompileError(f"type {token.text!r} has no width", token.pos, "'bit', 'int' or 'varbit'")

    def _named_type(self) -> ast.TypeRef:
        self.refuse_width()
        absolute = self.accept(".") is not None
        token = self.name("the name of a type")
        args: tuple[ast.TypeRef, ...] = ()
        if self.accept("<"):
            args = self._type_args()
            if token.text == "list" and not absolute and len(args) == 1:
                return ast.ListTypeRef(args[0], pos=token.pos)
        return ast.NamedType(token.text, absolute, args, pos=token.pos)

    def _width(self) -> ast.Expr:
        outer, self._greater_closes = self._greater_closes, True
        try:
            width = self.expression()
        finally:
            self._greater_closes = outer
        self.expect(">", "after the width of a type")
        return width

    def _type_args(self) -> tuple[ast.TypeRef, ...]:
        return self.comma_separated(self._type_arg, ">", "in the list of types")

    def _type_arg(self) -> ast.TypeRef:
        if token := self.accept("_") or self.accept("void"):
            return ast.BasicType(token.kind, pos=token.pos)
        return self.type_ref()

    # ----------------------------------------------------------------- expressions

    def expression(self) -> ast.Expr:
        """Parse an expression other than a keyset."""
        left = self._binary(0)
        if token := self.accept("?"):
            then = self.expression()
            self.expect(":", "between the two values of '?'")
            return ast.MuxExpr(left, then, self.expression(), pos=token.pos)
        return left

    def _binary(self, level: int) -> ast.Expr:
        left = self.unary()
        while True:
            token = self.token
            operator = token.kind
            if operator == ">":
                if self._greater_closes:
                    return left
                following = self.next_token()
                if following.kind == ">" and following.start == token.start + 1:
                    operator = ">>"
            precedence = _PRECEDENCE.get(operator, -1)
            if precedence < level:
                return left
            self.advance()
            if operator == ">>":
                self.advance()
            left = ast.BinaryExpr(operator, left, self._binary(precedence + 1), pos=token.pos)

    def unary(self) -> ast.Expr:
        """Parse an expression that has binary operators only inside parentheses."""
        token = self.token
        if token.kind in _UNARY:
            self.advance()
            return ast.UnaryExpr(token.kind, self.unary(), pos=token.pos)
        if token.kind == "(":
            return self._parenthesised()
        return self.postfix(self._primary())

    def _parenthesised(self) -> ast.Expr:
        """Parse a cast, or an expression in parentheses with its postfix operators."""
        opening = self.advance()
        if self.at_type_keyword() and not (self.token.kind == "error" and self.next_token().kind == "."):
            type_ref: ast.TypeRef | None = self.type_ref()
            self.expect(")", "after the type of a cast")
        else:
            type_ref = self.attempt(self._cast_type)
        if type_ref is not None:
            return ast.CastExpr(type_ref, self.unary(), pos=opening.pos)
        inner = self.bracketed()
        self.expect(")", "at the end of the expression in parentheses")
        return self.postfix(inner)

    def _cast_type(self) -> ast.TypeRef | None:
        if self.token.kind not in ("id", "."):
            return None
        is_type = (self.next_token() if self.token.kind == "." else self.token).text in self.types
        parsed = self.type_ref()
        if not self.accept(")"):
            return None
        # Parse an unknown name as a type if it cannot be a value: the error then says that it is unknown.
        return parsed if is_type or self.token.kind in _OPERAND_STARTS else None

    def _primary(self) -> ast.Expr:
        token = self.token
        if token.kind == "{":
            return self._braces()
        if token.kind not in _PRIMARIES:
            self.fail("an expression")
        self.advance()
        match token.kind:
            case "id":
                return ast.Name(token.text, False, pos=token.pos)
            case "number":
                return ast.IntLiteral(*integer(token), pos=token.pos)
            case ".":
                return ast.Name(self.name("a name after the leading '.'").text, True, pos=token.pos)
            case "true" | "false":
                return ast.BoolLiteral(token.kind == "true", pos=token.pos)
            case "quoted":
                return ast.StringLiteral(string(token), pos=token.pos)
            case "error":
                if self.token.kind != ".":
                    self.fail("'.' and the name of an error")
                return ast.TypeExpr(ast.BasicType("error", pos=token.pos), pos=token.pos)
            case word:
                return ast.Word(word, pos=token.pos)

    def postfix(self, base: ast.Expr) -> ast.Expr:
        """Parse the members, indices, slices and calls that follow `base`."""
        while True:
            match self.token.kind:
                case ".":
                    self.advance()
                    member = self.name("the name of a member after '.'")
                    base = ast.MemberExpr(base, member.text, pos=member.pos)
                case "(":
                    base = ast.CallExpr(base, (), self.arguments(), pos=base.pos)
                case "[":
                    base = self._index(base)
                case "<" if isinstance(base, ast.Name | ast.MemberExpr):
                    generic = self._generic(base)
                    if generic is None:
                        return base
                    base = generic
                case _:
                    return base

    def _generic(self, base: ast.Name | ast.MemberExpr) -> ast.Expr | None:
        """Parse the ``<types>(args)`` or, before a dot, the ``<types>`` that follows `base`.

        Return None if neither follows: then ``<`` is an operator.
        """
        if self.next_token().kind not in _TYPE_STARTS:
            return None

        def types() -> tuple[ast.TypeRef, ...] | None:
            self.advance()
            parsed = self._type_args()
            return parsed if self.token.kind in ("(", ".") else None

        args = self.attempt(types)
        if args is None:
            return None
        if self.token.kind == "(":
            return ast.CallExpr(base, args, self.arguments(), pos=base.pos)
        if not isinstance(base, ast.Name):
            self.fail("'(' after the list of types")
        return ast.TypeExpr(ast.NamedType(base.name, base.absolute, args, pos=base.pos), pos=base.pos)

    def _index(self, base: ast.Expr) -> ast.Expr:
        bracket = self.advance()
        first = self.bracketed()
        parsed: ast.Expr
        if self.accept(":"):
            parsed = ast.SliceExpr(base, first, self.bracketed(), pos=bracket.pos)
        elif self.accept("+:"):
            parsed = ast.PlusSlice(base, first, self.bracketed(), pos=bracket.pos)
        else:
            parsed = ast.IndexExpr(base, first, pos=bracket.pos)
        self.expect("]", "after the index")
        return parsed

    def arguments(self) -> tuple[ast.GivenArgument, ...]:
        """Parse arguments in parentheses."""
        self.expect("(", "before the arguments")
        outer, self._greater_closes = self._greater_closes, False
        parsed = self.comma_separated(self.argument, ")", "in the list of arguments")
        self._greater_closes = outer
        return parsed

    def argument(self) -> ast.GivenArgument:
        """Parse ``value`` or ``name = value``, where the value may be ``_``."""
        token = self.token
        name = None
        if token.kind == "id" and self.next_token().kind == "=":
            name = self.advance().text
            self.advance()
        if ignored := self.accept("_"):
            return ast.GivenArgument(name, ast.Word("_", pos=ignored.pos), pos=token.pos)
        return ast.GivenArgument(name, self.expression(), pos=token.pos)

    def _braces(self) -> ast.Expr:
        """Parse ``{a, b}`` or ``{a = x, b = y}``, either with ``...`` at the end."""
        opening = self.advance()
        outer, self._greater_closes = self._greater_closes, False
        elements = self.comma_separated(self.argument, "}", "in the list", trailing=True)
        self._greater_closes = outer
        dots = bool(elements) and ast.is_word(elements[-1].value, "...") and elements[-1].name is None
        if dots:
            elements = elements[:-1]
        named = [element for element in elements if element.name is not None]
        if named and len(named) == len(elements):
            return ast.StructExpr(elements, dots, pos=opening.pos)
        for element in elements:
            if named and element.name is None:
                raise CompileError(
                    "this value has no name, but other values in the list have", element.pos, "name = value"
                )
            if ast.is_word(element.value, "_"):
                raise CompileError("'_' is not a value", element.value.pos, "an expression")
        return ast.ListExpr(tuple(element.value for element in elements), dots, pos=opening.pos)

    # ----------------------------------------------------------------- keysets

    def keyset(self) -> tuple[ast.Expr, ...]:
        """Parse a key or ``(key, key)`` of a select case or table entry."""
        if self.token.kind == "(":

            def first_key() -> ast.Expr | None:
                self.advance()
                key = self._key()
                closed = self.token.kind == ")" and self.next_token().kind in (":", ",")
                return key if self.token.kind == "," or closed else None

            first = self.attempt(first_key)
            if first is not None:
                self.accept(",")
                return first, *self.comma_separated(self._key, ")", "in the keyset")
        return (self._key(),)

    def _key(self) -> ast.Expr:
        if token := self.accept("_"):
            return ast.Word("_", pos=token.pos)
        if token := self.accept("default"):
            return ast.Word("default", pos=token.pos)
        key = self.expression()
        if token := self.accept("&&&"):
            return ast.Mask(key, self.expression(), pos=token.pos)
        if token := self.accept(".."):
            return ast.RangeExpr(key, self.expression(), pos=token.pos)
        return key


def _joined(tokens: list[Token]) -> str:
    """Return the text of the tokens, with one blank wherever the source had white space."""
    text = ""
    end = tokens[0].start if tokens else 0
    for token in tokens:
        text += token.text if token.start == end else " " + token.text
        end = token.start + len(token.text)
    return text


def _text(name: Token, tokens: list[Token]) -> str:
    """Return the quoted string of an annotation, which may consist of strings joined by ``++``."""
    if len(tokens) % 2 and all(
        token.kind == ("++" if odd else "quoted")
        for token, odd in zip(tokens, cycle((False, True)), strict=False)
    ):
        return '"' + "".join(token.text[1:-1] for token in tokens[::2]) + '"'
    raise CompileError(f"@{name.text}({_joined(tokens)}) is not a string", name.pos, f'@{name.text}("…")')


def _check_repeated(annotation: ast.SourceAnnotation, before: Iterable[ast.SourceAnnotation]) -> None:
    """Raise CompileError if `before` has an annotation of the same name and one of the two is structured.

    Unstructured annotations may be repeated.
    """
    for other in before:
        if other.name == annotation.name and (annotation.elements, other.elements) != (None, None):
            raise CompileError(
                f"the annotation @{annotation.name} is repeated, and one of the two is in brackets",
                annotation.pos,
                "one annotation of this name",
            )
