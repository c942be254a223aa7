"""torch finds the backend by itself: cheaply, and never at the cost of `import torch`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


def said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip() + done.stderr.strip()


def test_importing_torch_registers_the_backend_and_imports_nothing_of_it() -> None:
    program = (
        "import sys, torch, torch.distributed as dist; print(dist.Backend.INA, "
        "sorted(name for name in sys.modules if name.startswith('hostlib')))"
    )
    assert said(program) == "ina ['hostlib', 'hostlib.torch_autoload']"


def test_what_prevents_the_backend_is_logged_and_does_not_break_torch() -> None:
    program = (
        "import sys, torch; import hostlib.torch_autoload as own; "
        "sys.modules['torch.distributed'] = None; own.autoload(); print('goes on')"
    )
    told = said(program)
    assert told.startswith("goes on")
    assert "torch has no backend 'ina': ModuleNotFoundError" in told


@pytest.mark.parametrize(
    ("asked", "stands_for", "made"),
    [
        ("gloo", "gloo", "ina"),
        ("GLOO", " Gloo ", "ina"),
        ("cpu:gloo", "gloo", "cpu:ina"),
        (None, "gloo", "cpu:ina"),  # as init_device_mesh asks
        (None, "", "cpu:gloo"),
        ("gloo", "", "gloo"),
        ("gloo", "glue", "gloo"),
    ],
)
def test_a_group_asked_for_by_a_name_that_a_library_knows_is_one_of_this_backend(
    asked: str | None, stands_for: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As accelerate and transformers' Trainer ask, which refuse names that they do not know."""
    monkeypatch.setenv("INA_AS", stands_for)
    program = (
        "import torch; "
        f"torch.distributed.init_process_group({asked!r}, store=torch.distributed.HashStore(), rank=0, "
        "world_size=1); print(torch.distributed.get_backend_config())"
    )
    told = said(program)
    assert told.removeprefix("cpu:").startswith(made.removeprefix("cpu:"))
    assert ("INA_AS=glue does not select 'ina': must be one of" in told) is (stands_for == "glue")
