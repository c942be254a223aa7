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
