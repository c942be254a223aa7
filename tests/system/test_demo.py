"""The demo says what it needs before it starts anything."""

from __future__ import annotations

import sys

import pytest

from tests.system.command import here


def test_the_demo_asks_for_scikit_learn_before_it_starts_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it were not installed
    done = here("demo")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "ina: the digits come with scikit-learn: pip install 'ina[examples]'\n"
