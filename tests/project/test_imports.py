"""The packages meet on the wire: who may import what (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("softswitch", "controller", "hostlib")
# Runs their cores against each other, from above.
TESTBEDS = "bmv2_topos"

# The places that compose all packages, through their public roots only.
COMPOSITION = ("controller.runtime", "controller.cli")
PUBLIC = {"softswitch", "softswitch.engine.bench", "hostlib", "hostlib.fallback", "hostlib.launcher"}
# Generated protobuf messages: a leaf without behaviour that both ends of P4Runtime share.
NEUTRAL = "controller.p4runtime_shim.messages"


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


@pytest.mark.parametrize(
    ("module", "path"), list(modules()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_module_imports_only_what_the_layout_allows(module: str, path: Path) -> None:
    own = module.split(".")[0]
    for imported in imports(path):
        other = imported.split(".")[0]
        if other == TESTBEDS:
            assert module.startswith(COMPOSITION), f"{module} imports {imported}"
        if other not in PACKAGES or other == own or imported.startswith(NEUTRAL):
            continue
        assert module.startswith(COMPOSITION), f"{module} imports {imported}"
        assert imported in PUBLIC, f"{module} imports {imported}, which is not public"


def test_the_core_protocol_does_no_io() -> None:
    forbidden = {"socket", "threading", "time", "select", "selectors", "asyncio", "subprocess"}
    for path in (ROOT / "hostlib" / "core").rglob("*.py"):
        found = forbidden.intersection(name.split(".")[0] for name in imports(path))
        assert not found, f"{path.name} imports {found}"
