"""Positions, what is refused, and programs with damage."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.compiler.errors import CompileError
from softswitch.compiler.frontend import ast
from softswitch.compiler.frontend.lexer import tokenize
from softswitch.compiler.frontend.parser import parse, parse_tokens
from softswitch.compiler.frontend.preprocess import preprocess
from tests.softswitch.parsing import declaration, declarations, statement

P4_SOURCES = Path(__file__).parents[2] / "p4src"


def test_positions_point_at_what_an_error_would_be_about():
    source = "control C() {\n  apply {\n    hdr.ip.ttl = a[1] + f(b) ;\n  }\n}"
    control = declaration(source)
    assert isinstance(control, ast.ControlDecl)
    (assignment,) = control.body.body
    assert isinstance(assignment, ast.Assign)
    assert isinstance(assignment.value, ast.Binary)
    nodes = {
        "declaration": control,
        "statement": assignment,
        "member": assignment.target,
        "operator": assignment.value,
        "index": assignment.value.left,
        "call": assignment.value.right,
    }
    assert {name: str(node.pos) for name, node in nodes.items()} == {
        "declaration": "f:1:9",
        "statement": "f:3:5",
        "member": "f:3:12",
        "operator": "f:3:23",
        "index": "f:3:19",
        "call": "f:3:25",
    }


@pytest.mark.parametrize(
    "source",
    ["x = f(a,);", "x = ;", "x + 1;", "f<>();", "x = (a;", "if a { }", "if (a) bit<8> x;", "x = y y;"],
)
def test_what_is_no_statement(source: str):
    with pytest.raises(CompileError):
        statement(source)


@pytest.mark.parametrize("open_", ["(", "{", "-", "a[", "(bit<8>)", "f("])
def test_deep_nesting_is_refused_and_not_a_crash(open_: str):
    with pytest.raises(CompileError, match="nested too deeply"):
        parse(f"const bit<8> x = {open_ * 5000}", "f")


@pytest.mark.parametrize("lanes", [32, 64, 256])
@pytest.mark.parametrize("path", sorted(P4_SOURCES.glob("*.p4")), ids=lambda path: path.name)
def test_our_programs_parse(path: Path, lanes: int):
    source = preprocess(path.read_text(), str(path), defines={"LANES": str(lanes)})
    names = [getattr(declaration, "name", None) for declaration in declarations(source)]
    assert names[-1] == "main"


PROGRAM = tokenize(
    preprocess(
        (P4_SOURCES / "exclusive.p4").read_text(), str(P4_SOURCES / "exclusive.p4"), defines={"LANES": "32"}
    ),
    "exclusive.p4",
)
# Without the architecture and without the lanes: the part in which everything occurs.
WINDOW = [token for token in PROGRAM if not token.pos.file.endswith(("/lanes.p4", "v1model.p4", "core.p4"))]


@given(st.data())
def test_damaged_programs_are_refused_with_a_position(data: st.DataObject):
    tokens = WINDOW.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(tokens) - 2))
        other = data.draw(st.integers(0, len(tokens) - 2))
        match data.draw(st.sampled_from(["delete", "swap", "copy", "cut"])):
            case "delete":
                del tokens[at]
            case "swap":
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case "copy":
                tokens.insert(at, tokens[other])
            case "cut":
                tokens = [*tokens[:at], tokens[-1]]
        if len(tokens) < 2:
            break
    places = {(token.pos.file, token.pos.line) for token in tokens}
    try:
        parse_tokens(tokens, "exclusive.p4")
        pos = tokens[-1].pos
    except CompileError as error:
        pos = error.pos
    assert (pos.file, pos.line) in places
