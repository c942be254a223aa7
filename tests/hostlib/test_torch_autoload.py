"""torch finds the backend by itself: cheaply, and never at the cost of `import torch`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.extras import needs

pytestmark = needs("torch")

FIRST = """
import sys, torch, torch.distributed as dist
print(dist.Backend.INA, sorted(name for name in sys.modules if name.startswith("hostlib")), flush=True)
import hostlib.torch_autoload as own
sys.modules["torch.distributed"] = None
own.autoload()
print("goes on")
"""
GROUPS = """
import json, os, sys, torch.distributed as dist
import hostlib.torch_autoload as own
for asked, stands_for in json.loads(sys.argv[1]):
    if os.fork() == 0:
        os.environ["INA_AS"] = stands_for
        own.autoload()
        dist.init_process_group(asked, store=dist.HashStore(), rank=0, world_size=1)
        print(dist.get_backend_config(), end="\\0", flush=True)
        os._exit(0)
    os.wait()
"""
"""One import of torch for all: each is a process that torch has not called yet."""
MADE = {
    ("gloo", "gloo"): "ina",
    ("GLOO", " Gloo "): "ina",
    ("cpu:gloo", "gloo"): "cpu:ina",
    (None, "gloo"): "cpu:ina",  # as init_device_mesh asks
    (None, ""): "cpu:gloo",
    ("gloo", ""): "gloo",
    ("gloo", "glue"): "gloo",
}
"""By the backend that is asked for, and INA_AS: the one of the group."""


def said(*program: str, **variables: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", *program],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout


def test_importing_torch_registers_the_backend_imports_nothing_of_it_and_goes_on_without() -> None:
    registered, prevented, end = said(FIRST).splitlines()
    assert registered == "ina ['hostlib', 'hostlib.torch_autoload']"
    assert "torch has no backend 'ina': ModuleNotFoundError" in prevented
    assert end == "goes on"


def test_a_group_asked_for_by_a_name_that_a_library_knows_is_one_of_this_backend() -> None:
    """As accelerate and transformers' Trainer ask, which refuse names that they do not know."""
    told = said(GROUPS, json.dumps([*MADE]), TORCH_DEVICE_BACKEND_AUTOLOAD="0").split("\0")
    for ((_, stands_for), made), text in zip(MADE.items(), told[:-1], strict=True):
        assert text.splitlines()[-1].removeprefix("cpu:").startswith(made.removeprefix("cpu:"))
        assert ("INA_AS=glue does not select 'ina': must be one of" in text) is (stands_for == "glue")
