"""Parse statements, and the declarations that may occur among them."""

from __future__ import annotations

from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast
from softswitch.compiler.frontend.parse_expressions import ExpressionParser

_ASSIGNMENTS = frozenset(["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "|+|=", "|-|="])
_DIRECTIONS = frozenset(["in", "out", "inout"])


class StatementParser(ExpressionParser):
    """Parses statements, variables, constants, instantiations and functions."""

    # ----------------------------------------------------------------- statements

    def block(self, annotations: tuple[ast.SourceAnnotation, ...] = ()) -> ast.BlockStatement:
        """Parse ``{ … }``."""
        opening = self.expect("{", "before the statements")
        with self.scope():
            body = self.statements("}")
        self.advance()
        return ast.BlockStatement(body, pos=opening.pos, annotations=annotations)

    def statements(self, *ends: str) -> tuple[ast.Stmt, ...]:
        """Parse statements up to one of the closing tokens."""
        found: list[ast.Stmt] = []
        while self.token.kind not in ends:
            if self.token.kind == "end":
                self.fail("a statement or '}'")
            if not self.accept(";"):
                found.append(self.statement())
        return tuple(found)

    def statement(self) -> ast.Stmt:
        """Parse one statement or declaration, with its semicolon."""
        annotations = self.annotations()
        token = self.token
        match token.kind:
            case "{":
                return self.block(annotations)
            case "for":
                return self._for(annotations)
            case "const":
                return self.constant(annotations)
            case _ if annotations:
                return self.typed_declaration(annotations)
            case "if":
                return self._if()
            case "switch":
                return self._switch()
            case "return":
                self.advance()
                value = None if self.token.kind == ";" else self.expression()
                self.semicolon("the return statement")
                return ast.ReturnStatement(value, pos=token.pos)
            case "exit" | "break" | "continue":
                self.advance()
                self.semicolon(f"'{token.kind}'")
                return ast.Jump(token.kind, pos=token.pos)
        parsed = self._simple_statement()
        self.semicolon("the statement")
        return parsed

    def _body(self) -> ast.Stmt:
        """Parse the body of another statement; it may be the empty statement ``;``."""
        if empty := self.accept(";"):
            return ast.BlockStatement((), pos=empty.pos)
        if self.token.kind == "end":
            self.fail("a statement")
        parsed = self.statement()
        if isinstance(parsed, ast.VarDecl | ast.ConstDecl | ast.Instantiation):
            raise CompileError(
                "a declaration cannot be the body of another statement", parsed.pos, "a statement or '{ … }'"
            )
        return parsed

    def _if(self) -> ast.IfStatement:
        token = self.advance()
        condition = self._condition("if")
        then = self._body()
        otherwise = self._body() if self.accept("else") else None
        return ast.IfStatement(condition, then, otherwise, pos=token.pos)

    def _condition(self, keyword: str) -> ast.Expr:
        self.expect("(", f"after '{keyword}'")
        condition = self.expression()
        self.expect(")", f"after the expression of '{keyword}'")
        return condition

    def _switch(self) -> ast.SwitchStatement:
        token = self.advance()
        subject = self._condition("switch")
        self.expect("{", "before the cases")
        return ast.SwitchStatement(subject, self.until(self._switch_case, "}"), pos=token.pos)

    def _switch_case(self) -> ast.SwitchCase:
        start = self.token
        label: ast.Expr
        if start.kind in ("{", "end"):
            self.fail("a label of a switch case or '}'")
        label = ast.Word("default", pos=start.pos) if self.accept("default") else self.expression()
        self.expect(":", "after the label of a switch case")
        body = self.block(self.annotations()) if self.token.kind in ("{", "@") else None
        return ast.SwitchCase(label, body, pos=start.pos)

    def _for(self, annotations: tuple[ast.SourceAnnotation, ...]) -> ast.For | ast.ForIn:
        token = self.advance()
        self.expect("(", "after 'for'")
        with self.scope():
            own = self.annotations()
            header = self.attempt(self._for_in_variable)
            if header is not None:
                type_ref, name = header
                collection = self.expression()
                if dots := self.accept(".."):
                    collection = ast.RangeExpr(collection, self.expression(), pos=dots.pos)
                self.expect(")", "at the end of the head of 'for'")
                return ast.ForIn(
                    type_ref, name, collection, self._body(), pos=token.pos, annotations=annotations
                )
            init = self._for_part(";", own)
            condition = self.expression()
            self.expect(";", "after the condition of 'for'")
            update = self._for_part(")", ())
            return ast.For(init, condition, update, self._body(), pos=token.pos, annotations=annotations)

    def _for_in_variable(self) -> tuple[ast.TypeRef | None, str] | None:
        if self.token.kind == "id" and self.next_token().kind == "in":
            type_ref, name = None, self.advance().text
        else:
            type_ref, name = self.type_ref(), self.name("the name of a variable").text
        return (type_ref, name) if self.accept("in") else None

    def _for_part(self, close: str, annotations: tuple[ast.SourceAnnotation, ...]) -> tuple[ast.Stmt, ...]:
        def part() -> ast.Stmt:
            return self._simple_statement(annotations)

        return self.comma_separated(part, close, "in the head of 'for'")

    def _simple_statement(self, annotations: tuple[ast.SourceAnnotation, ...] = ()) -> ast.Stmt:
        """Parse an assignment, a call or a declaration, without its semicolon."""
        token = self.token
        if self.at_type_keyword() or annotations:
            return self._typed(annotations)
        if token.kind in ("id", "."):
            # Only a declaration has a name after the type with which it begins.
            following = self.next_token().kind
            if following == "id" and token.kind == "id":
                return self._typed(())
            if following in ("<", "[", "(") or token.kind == ".":
                declaration = self.attempt(self._declared_after_type)
                if declaration is not None:
                    return self._typed_behind(*declaration, ())
                self.refuse_width()
        elif token.kind not in ("(", "this"):
            self.fail("a statement")
        left = self.unary()
        if self.token.kind in _ASSIGNMENTS:
            operator = self.advance().kind
            return ast.AssignStatement(left, operator, self.expression(), pos=token.pos)
        if isinstance(left, ast.CallExpr):
            return ast.CallStatement(left, pos=token.pos)
        self.fail("'=' or '(': a statement is an assignment or a call")

    # ----------------------------------------------------------------- declarations

    def typed_declaration(
        self, annotations: tuple[ast.SourceAnnotation, ...]
    ) -> ast.VarDecl | ast.Instantiation:
        """Parse a variable or an instance, with its semicolon."""
        parsed = self._typed(annotations)
        self.semicolon("the declaration")
        return parsed

    def _typed(self, annotations: tuple[ast.SourceAnnotation, ...]) -> ast.VarDecl | ast.Instantiation:
        type_ref = self.type_ref()
        args = self.arguments() if self.token.kind == "(" else None
        return self._typed_behind(type_ref, args, annotations)

    def _declared_after_type(self) -> tuple[ast.TypeRef, tuple[ast.GivenArgument, ...] | None] | None:
        type_ref = self.type_ref()
        args = self.arguments() if self.token.kind == "(" else None
        return (type_ref, args) if self.token.kind == "id" else None

    def _typed_behind(
        self,
        type_ref: ast.TypeRef,
        args: tuple[ast.GivenArgument, ...] | None,
        annotations: tuple[ast.SourceAnnotation, ...],
    ) -> ast.VarDecl | ast.Instantiation:
        """Parse the rest of a declaration after ``type`` or ``type(args)``."""
        type_ref, name = self.typed_name("the name of a variable or an instance", type_ref)
        self.declare_object(name.text)
        if args is None:
            value = self.expression() if self.accept("=") else None
            return ast.VarDecl(type_ref, name.text, value, pos=name.pos, annotations=annotations)
        initializer = None
        if self.accept("="):
            self.expect("{", "before the initialiser of an instance")
            with self.scope():
                initializer = self.until(self._initializer, "}")
        return ast.Instantiation(
            type_ref, args, name.text, initializer, pos=name.pos, annotations=annotations
        )

    def _initializer(self) -> ast.FunctionDecl | ast.Instantiation:
        annotations = self.annotations()
        if self.token.kind == "end":
            self.fail("a function, an instance or '}'")
        if function := self.attempt(self.function_head):
            return self.function(annotations, function)
        declared = self.typed_declaration(annotations)
        if isinstance(declared, ast.VarDecl):
            raise CompileError(
                "a variable cannot be declared in an initialiser", declared.pos, "a function or an instance"
            )
        return declared

    def constant(self, annotations: tuple[ast.SourceAnnotation, ...]) -> ast.ConstDecl:
        """Parse ``const type name = value;``."""
        self.advance()
        type_ref, name = self.typed_name("the name of the constant")
        self.expect("=", "and the value of the constant")
        value = self.expression()
        self.semicolon("the constant")
        self.declare_object(name.text)
        return ast.ConstDecl(type_ref, name.text, value, pos=name.pos, annotations=annotations)

    # ----------------------------------------------------------------- functions

    def function_head(self) -> ast.TypeRef | None:
        """Parse a result type that ``name(`` or ``name<`` follows; return None for anything else."""
        result = self.result_type()
        return result if self.token.kind == "id" and self.next_token().kind in ("(", "<") else None

    def result_type(self) -> ast.TypeRef:
        """Parse a type or void."""
        token = self.accept("void")
        return ast.BasicType("void", pos=token.pos) if token else self.type_ref()

    def function(
        self, annotations: tuple[ast.SourceAnnotation, ...], result: ast.TypeRef
    ) -> ast.FunctionDecl:
        """Parse the rest of a function after its result type."""
        with self.scope():
            prototype = self.prototype(annotations, result)
            body = self.block()
        return ast.FunctionDecl(prototype, body, pos=prototype.pos)

    def prototype(
        self,
        annotations: tuple[ast.SourceAnnotation, ...],
        result: ast.TypeRef | None,
        abstract: bool = False,
    ) -> ast.Prototype:
        """Parse the name, type parameters and parameters of a function, method or constructor."""
        name = self.name("the name of a function")
        type_params = self.type_params()
        return ast.Prototype(
            result,
            name.text,
            type_params,
            self.params(),
            pos=name.pos,
            annotations=annotations,
            abstract=abstract,
        )

    def type_params(self) -> tuple[ast.TypeParam, ...]:
        """Parse ``<A, B>`` if present, and declare the names as types."""
        if not self.accept("<"):
            return ()
        return self.comma_separated(self._type_param, ">", "in the list of type parameters")

    def _type_param(self) -> ast.TypeParam:
        name = self.name("the name of a type parameter")
        self.declare_type(name.text)
        return ast.TypeParam(name.text, pos=name.pos)

    def params(self) -> tuple[ast.ParamDecl, ...]:
        """Parse parameters in parentheses."""
        self.expect("(", "before the parameters")
        return self.comma_separated(self._param, ")", "in the list of parameters")

    def _param(self) -> ast.ParamDecl:
        annotations = self.annotations()
        direction = self.advance().kind if self.token.kind in _DIRECTIONS else ""
        type_ref, name = self.typed_name("the name of a parameter")
        default = self.expression() if self.accept("=") else None
        self.declare_object(name.text)
        return ast.ParamDecl(direction, type_ref, name.text, default, pos=name.pos, annotations=annotations)
