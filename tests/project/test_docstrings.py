"""Docstrings list the arguments of functions with many, and name what is returned by a noun."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.test_size import PRODUCT, ROOT

FOLDERS = (*PRODUCT, "examples", "benchmarks")

MANY = 4
"""Parameters from which on a public function lists them."""

INTERNAL = (
    *(f"softswitch/compiler/{room}" for room in ("frontend", "lowering", "ir", "undefined")),
    "softswitch/engine/emit_c",
)
"""Rooms whose functions are steps of one pass: `body`, `scope`, `pos` and so on mean the same in all."""

ELSEWHERE = re.compile(r"\bsee\s+`[\w.]+`", re.IGNORECASE)
"""The function whose docstring has the arguments of this one, too."""

EXEMPT = re.compile(r"overload|^(_v1|router)\.\w+\(")
"""Decorators of what has its arguments described elsewhere: routes of the API, in its schema."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def documented(tree: ast.Module) -> Iterator[tuple[str, ast.Module | ast.ClassDef | Function, str]]:
    """Yield name, definition and docstring of all that has one or could have one."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.Module | ast.ClassDef | Function, str]]:
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            yield name, node, ast.get_docstring(node) or ""
        for child in ast.iter_child_nodes(node):
            own = "._local." if isinstance(node, Function) else "."  # functions of functions are not public
            inner = f"{name}{own}{child.name}" if isinstance(child, ast.ClassDef | Function) else name
            yield from walk(child, inner)

    return walk(tree, "")


def parameters(function: Function) -> list[str]:
    """Return the names of the parameters as `Args` gives them, without the object or class itself."""
    of = function.args
    names = [each.arg for each in (*of.posonlyargs, *of.args)]
    names += [f"*{of.vararg.arg}"] if of.vararg else []
    names += [each.arg for each in of.kwonlyargs]
    names += [f"**{of.kwarg.arg}"] if of.kwarg else []
    return [name for name in names if name not in ("self", "cls")]


def listed(docstring: str) -> list[str] | None:
    """Return the names in the section `Args`, in order; None if there is none."""
    section = re.search(r"^Args:\n((?:(?: {4}.*)?\n?)*)", docstring, re.MULTILINE)
    return None if section is None else re.findall(r"^ {4}(\*{0,2}\w+): ", section[1], re.MULTILINE)


def wrong(path: str, text: str, commands: frozenset[str] = frozenset()) -> list[str]:
    """Return the violations in a file; `commands` are functions whose options have help instead."""
    found = []
    for name, node, docstring in documented(ast.parse(text)):
        where = f"{path}: {name.lstrip('.') or 'module'}"
        if docstring.startswith("Return what"):
            found.append(f"{where}: begins with 'Return what'")
        if not isinstance(node, Function):
            continue
        names, given = parameters(node), listed(docstring)
        if given is not None and given != names:
            found.append(f"{where}: Args are {given}, the parameters {names}")
        if (
            given is None
            and len(names) >= MANY
            and not ELSEWHERE.search(docstring)
            and path.startswith(PRODUCT)
            and not path.startswith(INTERNAL)
            and not any(part.startswith("_") for part in name.split(".") if part)
            and node.name not in commands
            and not any(EXEMPT.search(ast.unparse(each)) for each in node.decorator_list)
        ):
            found.append(f"{where}: {len(names)} parameters, and no Args")
    return found


def commands(path: Path) -> frozenset[str]:
    """Return the names that commands of a module have: those registered there or above, and its own."""
    lists = [path, ROOT / "ina/cli/catalog.py", ROOT / "ina/cli/service/controller.py"]
    text = "".join(each.read_text(encoding="utf-8") for each in lists)
    return frozenset(re.findall(rf'{path.stem}:(\w+)"', text)) | {path.stem, f"{path.stem}_"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_name_arguments_and_results(folder: str) -> None:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        relative = path.relative_to(ROOT).as_posix()
        exempt = commands(path) if relative.startswith("ina/cli/") else frozenset[str]()
        found += wrong(relative, path.read_text(encoding="utf-8"), exempt)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("docstring", "complaint"),
    [
        ("Add up.", "4 parameters, and no Args"),
        ("Return what is left.\n\n    See `other`.", "begins with 'Return what'"),
        ("Add up.\n\n    Args:\n        a: One.\n        b: Two.\n        c: Three.\n    ", "Args are"),
        (
            "Add up.\n\n    Args:\n        a: One.\n        c: 3.\n        b: 2.\n        d: 4.\n    ",
            "Args are",
        ),
    ],
)
def test_a_docstring_against_the_rules_is_refused(docstring: str, complaint: str) -> None:
    text = f'def add(a, b, c, d):\n    """{docstring}"""\n'
    (found,) = wrong("controller/sums.py", text)
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("controller/sums.py", 'def add(a, b, c, d):\n    """Add as others do; see `other.add`."""\n'),
        ("controller/sums.py", 'def _add(a, b, c, d):\n    """Add up."""\n'),
        ("softswitch/engine/emit_c/sums.py", 'def add(a, b, c, d):\n    """Add up."""\n'),
        ("benchmarks/sums.py", 'def add(a, b, c, d):\n    """Add up."""\n'),
        (
            "hostlib/sums.py",
            'def add(a, *b):\n    """Add up.\n\n    Args:\n        a: One.\n        *b: Two.\n    """\n',
        ),
    ],
)
def test_a_docstring_within_the_rules_is_taken(path: str, text: str) -> None:
    assert wrong(path, text) == []
