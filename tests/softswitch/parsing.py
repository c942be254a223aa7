"""Parts of a P4 program, parsed, and text of what came out."""

from softswitch.compiler.frontend import ast
from softswitch.compiler.frontend.parser import parse


def declarations(source: str) -> tuple[ast.Decl, ...]:
    return parse(source, "f").declarations


def declaration(source: str) -> ast.Decl:
    (only,) = declarations(source)
    return only


def statements(source: str) -> tuple[ast.Stmt, ...]:
    """Parse statements in the apply block of a control, behind a type T."""
    control = declarations(f"struct T {{}} control C() {{ apply {{ {source} }} }}")[1]
    assert isinstance(control, ast.ControlDecl)
    return control.body.body


def statement(source: str) -> ast.Stmt:
    (only,) = statements(source)
    return only


def expression(source: str) -> ast.Expr:
    parsed = statement(f"x = {source};")
    assert isinstance(parsed, ast.Assign)
    return parsed.value


def text(node: object) -> str:
    """Return an expression or type with all its parentheses."""
    match node:
        case ast.Name(name, absolute):
            return "." * absolute + name
        case ast.IntLiteral(value, width, signed):
            return str(value) if width is None else f"{width}{'s' if signed else 'w'}{value}"
        case ast.BoolLiteral(value):
            return str(value).lower()
        case ast.StringLiteral(value):
            return f'"{value}"'
        case ast.This():
            return "this"
        case ast.Member(base, name):
            return f"{text(base)}.{name}"
        case ast.Index(base, index):
            return f"{text(base)}[{text(index)}]"
        case ast.Slice(base, high, low):
            return f"{text(base)}[{text(high)}:{text(low)}]"
        case ast.PlusSlice(base, low, width):
            return f"{text(base)}[{text(low)}+:{text(width)}]"
        case ast.Unary(op, operand):
            return f"({op}{text(operand)})"
        case ast.Binary(op, left, right):
            return f"({text(left)} {op} {text(right)})"
        case ast.Mux(condition, then, otherwise):
            return f"({text(condition)} ? {text(then)} : {text(otherwise)})"
        case ast.Cast(type_, operand):
            return f"(({text(type_)}){text(operand)})"
        case ast.Call(callee, type_args, args):
            generic = f"<{', '.join(map(text, type_args))}>" if type_args else ""
            return f"{text(callee)}{generic}({', '.join(map(text, args))})"
        case ast.Argument(name, value):
            return text(value) if name is None else f"{name}={text(value)}"
        case ast.ListExpr(elements, dots):
            return f"{{{', '.join([*map(text, elements), *['...'] * dots])}}}"
        case ast.StructExpr(fields, dots):
            return f"{{{', '.join([*map(text, fields), *['...'] * dots])}}}"
        case ast.InvalidHeader():
            return "{#}"
        case ast.Mask(value, mask):
            return f"{text(value)} &&& {text(mask)}"
        case ast.Range(low, high):
            return f"{text(low)} .. {text(high)}"
        case ast.DontCare() | ast.DontCareType():
            return "_"
        case ast.Default():
            return "default"
        case ast.Dots():
            return "..."
        case ast.TypeExpr(type_):
            return text(type_)
        case ast.BoolType():
            return "bool"
        case ast.ErrorType():
            return "error"
        case ast.MatchKindType():
            return "match_kind"
        case ast.StringType():
            return "string"
        case ast.VoidType():
            return "void"
        case ast.IntegerType():
            return "int"
        case ast.BitsType(width, signed):
            return f"{'int' if signed else 'bit'}<{text(width)}>"
        case ast.VarbitType(width):
            return f"varbit<{text(width)}>"
        case ast.TupleType(elements):
            return f"tuple<{', '.join(map(text, elements))}>"
        case ast.ListType(element):
            return f"list<{text(element)}>"
        case ast.NamedType(name, absolute, args):
            return "." * absolute + name + (f"<{', '.join(map(text, args))}>" if args else "")
        case ast.StackType(element, size):
            return f"{text(element)}[{text(size)}]"
    raise AssertionError(node)
