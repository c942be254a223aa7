"""Everything here needs the reference tools; where they are missing, say which."""

from __future__ import annotations

import pytest

from tests.bmv2 import reference


@pytest.fixture(autouse=True, scope="session")
def reference_tools() -> None:
    """Skip if a reference tool is not on PATH."""
    if lacking := reference.missing():
        pytest.skip(f"not on PATH: {lacking}")
