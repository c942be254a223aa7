"""Small questions about the syntax tree that need no types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast


def walk(node: object) -> Iterator[object]:
    """Yield every node below `node`, and itself."""
    if isinstance(node, tuple):
        for item in node:
            yield from walk(item)
    elif is_dataclass(node) and not isinstance(node, ir.Position):
        yield node
        for field in fields(node):
            yield from walk(getattr(node, field.name))


def source_text(expr: ast.Expr) -> str | None:
    """Return a path, slice or ``isValid()`` as P4Info names it in a key; None of other expressions."""
    match expr:
        case ast.Name(name):
            return name
        case ast.Member(base, name):
            text = source_text(base)
            return None if text is None else f"{text}.{name}"
        case ast.Index(base, ast.IntLiteral(value)):
            text = source_text(base)
            return None if text is None else f"{text}[{value}]"
        case ast.Index(base, index):
            text, inner = source_text(base), source_text(index)
            return None if text is None or inner is None else f"{text}[{inner}]"
        case ast.Binary("&", left, ast.IntLiteral(mask)):
            text = source_text(left)
            return None if text is None else f"{text} & {mask:#x}"
        case ast.Slice(base, ast.IntLiteral(high), ast.IntLiteral(low)):
            text = source_text(base)
            return None if text is None else f"{text}[{high}:{low}]"
        case ast.Call(ast.Member(base, "isValid"), (), ()):
            text = source_text(base)
            return None if text is None else f"{text}.$valid$"
        case _:
            return None


def applications(node: object, name: str) -> list[ast.Call]:
    """Return the calls ``name.apply(…)`` below a node."""
    return [
        call
        for call in walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.callee, ast.Member)
        and call.callee.name == "apply"
        and isinstance(call.callee.base, ast.Name)
        and call.callee.base.name == name
    ]


def control_name(prefix: str, name: str, annotations: tuple[ast.Annotation, ...]) -> str:
    """Return the name of something in the control plane: as ``@name`` says, or `prefix` and `name`."""
    for annotation in annotations:
        if annotation.name == "name":
            name = _string(annotation)
            if name.startswith("."):
                return name[1:]
    return f"{prefix}.{name}" if prefix else name


def _string(annotation: ast.Annotation) -> str:
    body = annotation.body
    if len(body) >= 2 and body[0] == body[-1] == '"':
        return body[1:-1]
    raise CompileError(f"@name({body}) is no name", annotation.pos, '@name("…")')


def ir_annotations(annotations: tuple[ast.Annotation, ...]) -> tuple[ir.Annotation, ...]:
    """Return annotations as the IR carries them to P4Info."""
    return tuple(ir.Annotation(annotation.name, annotation.body) for annotation in annotations)


def spelling(expr: object) -> str:
    """Return text that two nodes share exactly if they differ in nothing but their positions."""
    match expr:
        case ir.Position():
            return ""
        case ast.StructExpr(members, dots):
            values = sorted((member.name or "", spelling(member.value)) for member in members)
            return f"StructExpr({values}, {dots})"
        case tuple():
            return "(" + ",".join(map(spelling, expr)) + ")"
        case _ if is_dataclass(expr):
            parts = ",".join(spelling(getattr(expr, f.name)) for f in fields(expr) if f.name != "pos")
            return f"{type(expr).__name__}({parts})"
        case _:
            return repr(expr)
