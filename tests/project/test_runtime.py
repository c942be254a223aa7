"""The runtime is a library: it prints nothing, and knows nothing of the command line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parents[2] / "ina" / "runtime"
OF_THE_COMMAND_LINE = ("typer", "rich", "click", "ina.cli")


def is_program(statement: ast.stmt) -> bool:
    """Whether this is what a module does that is run on another machine: it answers on standard output."""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"


@pytest.mark.parametrize("path", sorted(RUNTIME.glob("*.py")), ids=lambda path: path.stem)
def test_it_imports_nothing_of_the_command_line_and_prints_nothing(path: Path) -> None:
    tree = ast.parse(path.read_text())
    tree.body = [each for each in tree.body if not is_program(each)]
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        for name in names:
            assert not f"{name}.".startswith(tuple(f"{each}." for each in OF_THE_COMMAND_LINE)), name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            assert any(keyword.arg == "file" for keyword in node.keywords), f"line {node.lineno} prints"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys":
            assert node.attr not in ("exit", "stdout", "stderr"), f"line {node.lineno}"
