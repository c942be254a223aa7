"""Files and modules that comments, docstrings and pages name are there."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("p4src", "softswitch", "controller", "hostlib", "bmv2_topos", "ina"),
    *("examples", "benchmarks", "tests"),
)
KINDS = ("py", "c", "h", "p4", "md", "toml", "yaml", "json", "sh", "stf")

PATH = re.compile(rf"(?<![\w./~{{}}<>*-])(?:\.\./)*(?:[\w.-]+/)+[\w-]+\.(?:{'|'.join(KINDS)})\b(?![\w/*])")
MODULE = re.compile(rf"`+((?:{'|'.join(FOLDERS)})(?:\.\w+)+)(?:\(\))?`+")
TEST = re.compile(r"`(test_\w+\.py)`")
C_FILE = re.compile(r"(?<![\w./<*-])[a-z]\w*\.[ch]\b(?![\w(])")

# Loggers, entry points, fields of the dissector, files of the kernel, of other projects and of readers.
OTHERS = {
    *("ina.policies", "ina.memory", "ina.placement", "ina.routing", "ina.congestion", "ina.flags.collision"),
    *("hostlib.paths", "hostlib.watch"),
    *("ina.TESTBED.NODE", "nets/my.yaml"),
    *("linux/ethtool.h", "simulator/run_sim.py"),
}


@cache
def files() -> frozenset[str]:
    """Every file of the project, relative to its root."""
    found = {path.name for path in ROOT.iterdir() if path.is_file()}
    for folder in (*FOLDERS, "docs"):
        found |= {
            str(path.relative_to(ROOT))
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
    return frozenset(found)


@cache
def endings() -> frozenset[str]:
    """Every path of a file, from any of its folders on."""
    return frozenset(
        "/".join(parts[first:])
        for file in files()
        for parts in [file.split("/")]
        for first in range(len(parts))
    )


def notes(path: Path) -> Iterator[str]:
    """Yield what a file says to readers: its comments and docstrings, or all of a page but its code."""
    text = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    yield token.string
            for node in ast.walk(ast.parse(text)):
                match node:
                    case ast.Expr(value=ast.Constant(value=str(docstring))):
                        yield docstring
        case ".c" | ".h" | ".p4":
            yield from re.findall(r"/\*.*?\*/|//[^\n]*", text, re.S)
        case ".md":
            yield re.sub(r"```.*?```", "", text, flags=re.S)


@cache
def words(file: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", (ROOT / file).read_text(encoding="utf-8")))


@cache
def words_below(package: str) -> frozenset[str]:
    below = (file for file in files() if file.startswith(f"{package}/") and file.endswith(".py"))
    return frozenset().union(*map(words, below))


def is_there(module: str) -> bool:
    """Whether a name is a module, or names what is written in one, and members that its package has."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        for file in ("/".join(parts[:end]) + ".py", "/".join([*parts[:end], "__init__.py"])):
            if file in files():
                here, members = parts[end : end + 1], parts[end + 1 :]  # the name may come from elsewhere
                return {*here} <= words(file) and {*members} <= words_below(parts[0])
    return (ROOT / "/".join(parts)).is_dir()


def unknown(text: str, suffix: str) -> list[str]:
    """Return the names in a note of such a file that name nothing."""
    names = [name for name in PATH.findall(text) if re.sub(r"^(\.\./)+", "", name) not in endings()]
    names += [name for name in MODULE.findall(text) if not is_there(name)]
    names += [name for name in TEST.findall(text) if name not in endings()]
    if suffix in (".c", ".h"):
        names += [name for name in C_FILE.findall(text) if name not in endings()]
    return [name for name in names if name not in OTHERS]


def readable() -> list[str]:
    """Return the files to look at: not what is generated, nor what tells of earlier versions."""
    left_out = ("p4src/messages/", "docs/results/", "CHANGELOG.md")
    kinds = (".py", ".c", ".h", ".p4", ".md")
    return sorted(file for file in files() if Path(file).suffix in kinds and not file.startswith(left_out))


def unknown_in(path: Path) -> list[str]:
    """Return the names in the notes of a file that name nothing."""
    if not unknown(path.read_text(encoding="utf-8"), path.suffix):  # finding the notes takes longer
        return []
    return [name for text in notes(path) for name in unknown(text, path.suffix)]


def test_what_comments_docstrings_and_pages_name_is_there() -> None:
    found = [f"{file}: {name}" for file in readable() for name in unknown_in(ROOT / file)]
    assert not found, "\n".join(found)


def test_a_package_has_the_modules_that_it_describes() -> None:
    found = [
        f"{file}: {name}"
        for file in readable()
        if file.endswith("/__init__.py")
        for note in notes(ROOT / file)
        for name in re.findall(r"^(?:- )?`([a-z_]+)`(?::|  )", note, re.MULTILINE)
        if name not in {each.stem for each in (ROOT / file).parent.iterdir()}
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("suffix", "text", "found"),
    [
        (".c", "/* twin of hostlib/core/numpy_kernel.py */", ["hostlib/core/numpy_kernel.py"]),
        (".c", "/* as ina_gone.c does */", ["ina_gone.c"]),
        (".py", "as `hostlib.gone` and `hostlib.wire` do", ["hostlib.gone"]),
        (".py", "see `hostlib.wire.no_such_name`", ["hostlib.wire.no_such_name"]),
        (".md", "held by `test_gone.py`", ["test_gone.py"]),
        (
            ".md",
            "see [there](../hostlib/wire/__init__.py), `tests/system/test_soak.py` and `ina sim x/y.toml`",
            ["x/y.toml"],
        ),
    ],
)
def test_what_is_gone_is_found(suffix: str, text: str, found: list[str]) -> None:
    assert unknown(text, suffix) == found


def test_what_is_left_out_is_written_somewhere() -> None:
    missing = set(OTHERS)
    for file in readable():
        text = (ROOT / file).read_text(encoding="utf-8")
        if any(name in text for name in missing):  # what it says to readers takes long to find
            missing -= {name for note in notes(ROOT / file) for name in missing if name in note}
    assert not missing
