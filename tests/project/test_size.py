"""The house only gets smaller: what size.json says of each room is the most that it may have.

``python -m tests.project.test_size`` writes down the figures of now. A change that needs more raises one by
hand, and its commit says what that pays for.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parent / "size.json"
PRODUCT = ("p4src", "softswitch", "controller", "hostlib", "bmv2_topos", "ina")
CODE = (".py", ".c", ".h", ".p4", ".js", ".css", ".html")
SMALL = 25
"""A module of fewer statements that one other imports belongs there."""
MANY = 8
"""Parameters of a function from which on it is counted."""


def endings(path: Path) -> int:
    """Count what takes the place of Python's statements, without docstrings: what ends by ``;`` and ``{``."""
    text = path.read_text(errors="replace")
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    if path.suffix == ".html":
        return sum(bool(line.strip()) for line in text.splitlines())
    return text.count(";") + text.count("{") + len(re.findall(r"^\s*#", text, flags=re.M))


def docstring(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from [node.module] * len(node.names)
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def figures() -> dict[str, int]:
    """Return the house's figures: statements of rooms, files, and how much of what is spread thin."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"git does not list the project's files: {listed.stderr.strip()}")
    files = [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    found = Counter({"files": len(files)})
    classes, uses, modules = Counter[str](), Counter[str](), dict[str, int]()
    for path in files:
        name = path.relative_to(ROOT)
        if path.suffix not in CODE or name.parts[0] not in (*PRODUCT, "tests", "benchmarks"):
            continue
        nodes = [*ast.walk(ast.parse(path.read_text()))] if path.suffix == ".py" else []
        size = (
            sum(isinstance(node, ast.stmt) and not docstring(node) for node in nodes)
            if nodes
            else endings(path)
        )
        found[f"statements of {name.parts[0]}"] += size
        if not nodes or name.parts[0] not in PRODUCT:
            continue
        modules[".".join(name.with_suffix("").parts).removesuffix(".__init__")] = size
        uses.update(imported(nodes))
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                many = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) >= MANY
                found[f"functions of {MANY} parameters or more"] += many
    found["class names that several classes have"] = sum(number > 1 for number in classes.values())
    found["small modules of one use"] = sum(
        size < SMALL and uses[name] <= 1 and "__" not in name for name, size in modules.items()
    )
    return dict(sorted(found.items()))


def test_it_does_not_grow() -> None:
    now = figures()
    grown = {
        figure: f"{now[figure]:,}, at most {most:,}"
        for figure, most in json.loads(FILE.read_text()).items()
        if now.get(figure, 0) > most
    }
    assert not grown, FILE.name


if __name__ == "__main__":
    FILE.write_text(json.dumps(figures(), indent=1) + "\n")
