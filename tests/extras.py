"""Optional packages that tests need, looked for without loading them: each test process reads all tests."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(package: str) -> pytest.MarkDecorator:
    """Mark what is skipped where a package is missing."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"could not import {package!r}")
