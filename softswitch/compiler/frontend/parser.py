"""Text to syntax tree: a recursive-descent parser for the whole grammar of P4_16.

It stops at the first error. Each layer adds to the one before: `parse_base` the cursor,
`parse_expressions`, `parse_statements`, `parse_declarations`.
"""

from __future__ import annotations

from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast
from softswitch.compiler.frontend.lexer import Token, tokenize
from softswitch.compiler.frontend.parse_declarations import DeclarationParser
from softswitch.compiler.ir import Position


def parse(text: str, name: str) -> ast.Program:
    """Return the tree of a preprocessed program.

    `name` is the file that positions name up to the first line marker in `text`.
    Raises CompileError at the first token that does not fit.
    """
    return parse_tokens(tokenize(text, name), name)


def parse_tokens(tokens: list[Token], name: str) -> ast.Program:
    """Return the tree of the tokens of a whole program."""
    parser = DeclarationParser(tokens)
    try:
        return ast.Program(parser.declarations(), Position(name, 1, 1))
    except RecursionError:
        raise CompileError("the program is nested too deeply here", parser.token.pos) from None
