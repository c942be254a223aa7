"""From source files to the syntax tree: preprocessor, lexer, and a recursive-descent parser for all of P4_16.

The parser has three layers, each a subclass of the one before: `parse_expressions`, with the cursor;
`parse_statements`; and the declarations here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from softswitch.compiler.errors import CompileError, gathered
from softswitch.compiler.frontend import ast
from softswitch.compiler.frontend.lexer import Token, tokenize
from softswitch.compiler.frontend.parse_statements import StatementParser
from softswitch.compiler.ir import Position

_NAMED_TYPES = {"header", "struct", "header_union", "enum"}
_STARTS = _NAMED_TYPES | {
    *("const", "extern", "action", "parser", "control", "package", "typedef", "error", "match_kind")
}
_IN_PARSERS = ("state", "const", "value_set")
_IN_CONTROLS = ("apply", "action", "table", "const")

_ParserLocal = ast.ConstDecl | ast.VarDecl | ast.Instantiation | ast.ValueSetDecl
_ControlLocal = ast.ConstDecl | ast.VarDecl | ast.Instantiation | ast.ActionDecl | ast.TableDecl


class DeclarationParser(StatementParser):
    """Parses whole programs."""

    def declarations(self) -> tuple[ast.Decl, ...]:
        """Parse up to the end of the file."""
        found: list[ast.Decl] = []
        errors: list[CompileError] = []
        while self.token.kind != "end":
            if self.accept(";"):
                continue
            start = self.token
            try:
                declaration = self._declaration()
            except CompileError as error:
                errors.append(self._misspelt(start, _STARTS) or error)
                self._skip_declaration()
                continue
            if declaration is not None:
                found.append(declaration)
        if errors:
            raise gathered(errors)
        return tuple(found)

    def _skip_declaration(self) -> None:
        """Advance, after an error, to the next line that begins with a declaration's keyword."""
        self.advance()
        while self.token.kind != "end" and (self.token.kind not in _STARTS or self.token.pos.column > 1):
            self.advance()

    def _misspelt(self, start: Token, keywords: Iterable[str]) -> CompileError | None:
        """Return an error if `start`, the first token of a declaration, is a misspelt keyword; else None."""
        if start.kind != "id" or start.text in self.types:
            return None
        near = difflib.get_close_matches(start.text, list(keywords), n=1, cutoff=0.75)
        return CompileError(f"unknown keyword {start.text!r}", start.pos, repr(near[0])) if near else None

    def _declaration(self) -> ast.Decl | None:
        annotations = self.annotations()
        token = self.token
        match token.kind:
            case "const":
                return self.constant(annotations)
            case "extern":
                return self._extern(annotations)
            case "action":
                return self._action(annotations)
            case "parser" | "control":
                return self._block_declaration(annotations)
            case "package":
                return self._package(annotations)
            case "typedef":
                return self._typedef(annotations, distinct=False)
            case "id" if token.text == "type" and self.next_token().kind not in ("(", "<"):
                return self._typedef(annotations, distinct=True)
            case "error" | "match_kind" if self.next_token().kind == "{":
                self.advance()
                return ast.MembersDecl(token.kind, self._members(values=False), pos=token.pos)
            case kind if kind in _NAMED_TYPES:
                return self._named_type_declaration(annotations)
        if token.kind not in ("id", ".", "void") and not self.at_type_keyword():
            self.fail("a declaration")
        if result := self.attempt(self.function_head):
            return self.function(annotations, result)
        declared = self.typed_declaration(annotations)
        if isinstance(declared, ast.VarDecl):
            raise CompileError(
                "a variable cannot be declared outside parsers and controls",
                declared.pos,
                "a constant, a function or an instance",
            )
        return declared

    # ----------------------------------------------------------------- named types

    def _named_type_declaration(
        self, annotations: tuple[ast.SourceAnnotation, ...]
    ) -> ast.FieldsDecl | ast.EnumDecl:
        keyword = self.advance().kind
        if keyword == "enum":
            return self._enum(annotations)
        name = self._declared_type(f"the name of the {keyword}")
        with self.scope():
            type_params = self.type_params()
            self.expect("{", "before the fields")
            fields = self.until(self._field, "}")
        return ast.FieldsDecl(keyword, name.text, type_params, fields, pos=name.pos, annotations=annotations)

    def _declared_type(self, what: str) -> Token:
        name = self.name(what)
        self.declare_type(name.text)
        return name

    def _field(self) -> ast.FieldDecl:
        annotations = self.annotations()
        type_ref, name = self.typed_name("the name of a field")
        self.semicolon("the field")
        return ast.FieldDecl(type_ref, name.text, pos=name.pos, annotations=annotations)

    def _enum(self, annotations: tuple[ast.SourceAnnotation, ...]) -> ast.EnumDecl:
        plain = self.token.kind == "id" and self.next_token().kind == "{"
        underlying = None if plain else self.type_ref()
        name = self._declared_type("the name of the enum")
        return ast.EnumDecl(
            underlying, name.text, self._members(values=not plain), pos=name.pos, annotations=annotations
        )

    def _members(self, *, values: bool) -> tuple[ast.EnumMember, ...]:
        """Parse ``{ name, … }``, or with `values` ``{ name = value, … }``."""
        self.expect("{", "before the members")

        def member() -> ast.EnumMember:
            annotations = self.annotations()
            name = self.name("the name of a member")
            value = None
            if values:
                self.expect("=", "and a value: the enum has an underlying type")
                value = self.expression()
            return ast.EnumMember(name.text, value, pos=name.pos, annotations=annotations)

        return self.comma_separated(member, "}", "in the list of members", trailing=True)

    def _typedef(self, annotations: tuple[ast.SourceAnnotation, ...], *, distinct: bool) -> ast.TypedefDecl:
        self.advance()
        inner = self.annotations()
        named: ast.TypeRef | ast.FieldsDecl | ast.EnumDecl
        if self.token.kind in _NAMED_TYPES and not distinct:
            named = self._named_type_declaration(inner)
            name = self._declared_type("the name of the type")
        else:
            plain = self.type_ref()
            name = self._declared_type("the name of the type")
            named = self.stack_sizes(plain)
        self.semicolon("the type definition")
        return ast.TypedefDecl(distinct, named, name.text, pos=name.pos, annotations=annotations)

    # ----------------------------------------------------------------- externs, actions, packages

    def _extern(
        self, annotations: tuple[ast.SourceAnnotation, ...]
    ) -> ast.ExternDecl | ast.ExternFunctionDecl | None:
        self.advance()
        if self.token.kind == "id" and self.next_token().kind == ";":
            # A forward declaration only states that this is a type.
            self._declared_type("the name of the extern")
            return None
        with self.scope():
            head = self.attempt(self._extern_head)
            if head is not None:
                methods = self.until(self._method, "}")
            else:
                prototype = self.prototype(annotations, self.result_type())
                self.semicolon("the function")
        if head is None:
            return ast.ExternFunctionDecl(prototype, pos=prototype.pos)
        name, type_params = head
        self.declare_type(name.text)
        return ast.ExternDecl(name.text, type_params, methods, pos=name.pos, annotations=annotations)

    def _extern_head(self) -> tuple[Token, tuple[ast.TypeParam, ...]] | None:
        name = self._declared_type("the name of the extern")
        type_params = self.type_params()
        return (name, type_params) if self.accept("{") else None

    def _method(self) -> ast.Prototype:
        annotations = self.annotations()
        abstract = self.accept("abstract") is not None
        if self.token.kind == "end":
            self.fail("a method or '}'")
        with self.scope():
            constructor = self.token.kind == "id" and self.next_token().kind == "("
            result = None if constructor else self.result_type()
            method = self.prototype(annotations, result, abstract)
        self.semicolon("the method")
        return method

    def _action(self, annotations: tuple[ast.SourceAnnotation, ...]) -> ast.ActionDecl:
        self.advance()
        name = self.name("the name of the action")
        with self.scope():
            params = self.params()
            body = self.block()
        return ast.ActionDecl(name.text, params, body, pos=name.pos, annotations=annotations)

    def _package(self, annotations: tuple[ast.SourceAnnotation, ...]) -> ast.PackageDecl:
        self.advance()
        name = self._declared_type("the name of the package")
        with self.scope():
            type_params = self.type_params()
            params = self.params()
        self.semicolon("the package type")
        return ast.PackageDecl(name.text, type_params, params, pos=name.pos, annotations=annotations)

    # ----------------------------------------------------------------- parsers and controls

    def _block_declaration(
        self, annotations: tuple[ast.SourceAnnotation, ...]
    ) -> ast.ParserDecl | ast.ParserTypeDecl | ast.ControlDecl | ast.ControlTypeDecl:
        kind = self.advance().kind
        name = self._declared_type(f"the name of the {kind}")
        with self.scope():
            head = (name.text, self.type_params(), self.params())
            if self.accept(";"):
                declared = ast.ParserTypeDecl if kind == "parser" else ast.ControlTypeDecl
                return declared(*head, pos=name.pos, annotations=annotations)
            constructor_params = self._constructor_params()
            self.expect("{", f"or ';' after the parameters of a {kind}")
            if kind == "parser":
                local, states = self._parser_body()
                return ast.ParserDecl(
                    *head, constructor_params, local, states, pos=name.pos, annotations=annotations
                )
            declarations, body = self._control_body()
            return ast.ControlDecl(
                *head, constructor_params, declarations, body, pos=name.pos, annotations=annotations
            )

    def _parser_body(self) -> tuple[tuple[_ParserLocal, ...], tuple[ast.StateDecl, ...]]:
        local: list[_ParserLocal] = []
        states: list[ast.StateDecl] = []
        while not self.accept("}"):
            if self.accept(";"):
                continue
            inner = self.annotations()
            if self.accept_word("state"):
                states.append(self._state(inner))
            elif states or self.token.kind == "end":
                raise self._misspelt(self.token, ("state",)) or self.failure("a state or '}'")
            else:
                start = self.token
                try:
                    local.append(self._parser_local(inner))
                except CompileError as error:
                    raise self._misspelt(start, _IN_PARSERS) or error from None
        return tuple(local), tuple(states)

    def _parser_local(self, annotations: tuple[ast.SourceAnnotation, ...]) -> _ParserLocal:
        if self.token.kind == "const":
            return self.constant(annotations)
        if not self.accept("value_set"):
            return self.typed_declaration(annotations)
        self.expect("<", "after 'value_set'")
        element = self.type_ref()
        self.expect(">", "after the type of the value set")
        self.expect("(", "before the size of the value set")
        size = self.expression()
        self.expect(")", "after the size of the value set")
        name = self.name("the name of the value set")
        self.semicolon("the value set")
        return ast.ValueSetDecl(element, size, name.text, pos=name.pos, annotations=annotations)

    def _state(self, annotations: tuple[ast.SourceAnnotation, ...]) -> ast.StateDecl:
        name = self.name("the name of the state")
        self.expect("{", "before the statements of a state")
        with self.scope():
            body = self.statements("transition", "}")
            transition = self._transition() if self.accept("transition") else None
        self.expect("}", "at the end of the state")
        return ast.StateDecl(name.text, body, transition, pos=name.pos, annotations=annotations)

    def _transition(self) -> ast.Select | ast.Goto:
        if token := self.accept("select"):
            self.expect("(", "after 'select'")
            subjects = self.comma_separated(self.expression, ")", "in the list of select's expressions")
            self.expect("{", "before the cases of select")
            return ast.Select(subjects, self.until(self._select_case, "}"), pos=token.pos)
        target = self.name("the name of a state or 'select'")
        self.semicolon("the transition")
        return ast.Goto(target.text, pos=target.pos)

    def _select_case(self) -> ast.SelectCase:
        start = self.token
        if start.kind == "end":
            self.fail("a case of select or '}'")
        keys = self.keyset()
        self.expect(":", "and the name of a state after a keyset")
        target = self.name("the name of a state")
        self.semicolon("the case")
        return ast.SelectCase(keys, target.text, pos=start.pos)

    def _constructor_params(self) -> tuple[ast.ParamDecl, ...]:
        params = self.params() if self.token.kind == "(" else ()
        for param in params:
            if param.direction:
                raise CompileError(
                    f"constructor parameter {param.name!r} has the direction {param.direction!r}",
                    param.pos,
                    "no direction: a constructor parameter is known at compile time",
                )
        return params

    # ----------------------------------------------------------------- controls and tables

    def _control_body(self) -> tuple[tuple[_ControlLocal, ...], ast.BlockStatement]:
        local: list[_ControlLocal] = []
        while not self.accept_word("apply"):
            if self.accept(";"):
                continue
            if self.token.kind in ("}", "end"):
                self.fail("a declaration or 'apply'")
            start, inner = self.token, self.annotations()
            try:
                local.append(self._control_local(inner))
            except CompileError as error:
                raise self._misspelt(start, _IN_CONTROLS) or error from None
        body = self.block(self.annotations())
        self.expect("}", "at the end of the control, after its 'apply'")
        return tuple(local), body

    def _control_local(self, annotations: tuple[ast.SourceAnnotation, ...]) -> _ControlLocal:
        match self.token.kind:
            case "const":
                return self.constant(annotations)
            case "action":
                return self._action(annotations)
            case "table":
                return self._table(annotations)
        if self.token.kind not in ("id", ".") and not self.at_type_keyword():
            self.fail("a declaration or 'apply'")
        return self.typed_declaration(annotations)

    def _table(self, annotations: tuple[ast.SourceAnnotation, ...]) -> ast.TableDecl:
        self.advance()
        name = self.name("the name of the table")
        self.expect("{", "before the properties of a table")
        keys: tuple[ast.KeyElement, ...] | None = None
        actions: tuple[ast.ActionUse, ...] | None = None
        entries: ast.Entries | None = None
        properties: list[ast.Property] = []
        seen: set[str] = set()
        while not self.accept("}"):
            inner = self.annotations()
            const = self.accept("const") is not None
            kind = self.name("a property of the table or '}'")
            if kind.text in seen:
                raise CompileError(f"the table has two properties '{kind.text}'", kind.pos)
            seen.add(kind.text)
            if entries is not None and kind.text == "key":
                raise CompileError("the table's key comes after its entries", kind.pos, "the key first")
            if actions is None and kind.text == "default_action":
                raise CompileError(
                    "the table's default action comes before its actions",
                    kind.pos,
                    "actions = { … } before default_action",
                )
            self.expect("=", f"after '{kind.text}'")
            match kind.text:
                case "key":
                    keys = self.braced(self._key_element, "before the keys")
                case "actions":
                    actions = self.braced(self._listed_action, "before the actions")
                case "entries":
                    listed = self.braced(self._entry, "before the entries")
                    entries = ast.Entries(const, listed, pos=kind.pos, annotations=inner)
                case _:
                    value = self.expression()
                    self.semicolon("the property")
                    properties.append(ast.Property(const, kind.text, value, pos=kind.pos, annotations=inner))
        return ast.TableDecl(
            name.text, keys, actions, entries, tuple(properties), pos=name.pos, annotations=annotations
        )

    def _key_element(self) -> ast.KeyElement:
        start = self.token
        expr = self.expression()
        self.expect(":", "and the match kind after a key")
        match_kind = self.name("a match kind: exact, lpm, ternary …")
        annotations = self.annotations()
        self.semicolon("the key")
        return ast.KeyElement(expr, match_kind.text, pos=start.pos, annotations=annotations)

    def _listed_action(self) -> ast.ActionUse:
        annotations = self.annotations()
        action = self._action_ref()
        self.semicolon("the action")
        return ast.ActionUse(
            action.name, action.absolute, action.args, pos=action.pos, annotations=annotations
        )

    def _action_ref(self) -> ast.ActionUse:
        absolute = self.accept(".") is not None
        name = self.name("the name of an action")
        args = self.arguments() if self.token.kind == "(" else None
        return ast.ActionUse(name.text, absolute, args, pos=name.pos)

    def _entry(self) -> ast.EntryDecl:
        start = self.token
        const = self.accept("const") is not None
        priority = None
        if self.token.text == "priority" and self.next_token().kind == "=":
            self.advance()
            self.advance()
            priority = self.unary()
            self.expect(":", "after the priority of an entry")
        keys = self.keyset()
        self.expect(":", "and an action after a keyset")
        action = self._action_ref()
        annotations = self.annotations()
        self.semicolon("the entry")
        return ast.EntryDecl(const, priority, keys, action, pos=start.pos, annotations=annotations)


def parse(text: str, name: str) -> ast.SourceProgram:
    """Return the syntax tree of a preprocessed program.

    `name` is the file name in positions before the first line marker of `text`.
    Raises CompileError at the first unexpected token, with errors of later declarations in `others`.
    """
    return parse_tokens(tokenize(text, name), name)


def parse_tokens(tokens: list[Token], name: str) -> ast.SourceProgram:
    """Return the tree of the tokens of a whole program."""
    parser = DeclarationParser(tokens)
    try:
        return ast.SourceProgram(parser.declarations(), pos=Position(name, 1, 1))
    except RecursionError:
        raise CompileError("the program is nested too deeply here", parser.token.pos) from None
