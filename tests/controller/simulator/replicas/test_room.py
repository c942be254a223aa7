"""Replicas have a room of their own: only the list of all policies, benchmarks and tests know them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]
ROOM = "controller/simulator/replicas"
DOORS = {"controller/policies/registry.py"}


def test_nothing_of_the_product_imports_replicas_but_the_list_of_policies() -> None:
    imports = re.compile(
        r"^\s*(?:from|import) controller\.simulator(?:\.| import .*\b)replicas\b"
        r"|[\"']controller\.simulator\.replicas\b",  # by name, when it is asked for
        re.M,
    )
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("controller", "hostlib", "softswitch", "bmv2_topos")
        for path in (ROOT / package).rglob("*.py")
        if imports.search(path.read_text(encoding="utf-8"))
    }
    assert {name for name in found if not name.startswith(ROOM)} == DOORS
