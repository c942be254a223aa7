"""Processes that tests start behave as others do, though they begin in less time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.extras import needs
from tests.started import FOLDER

MADE = """
from dataclasses import dataclass
@dataclass(frozen=True, order=True, slots=True)
class Made:
    first: int
    {second}: str = "x"
"""
SAY = "print(Made(1), Made(1) == Made(1), Made(1) < Made(2), hash(Made(1)) == hash(Made(1)), Made.__slots__)"


def said(folder: Path, package: str, second: str) -> str:
    (folder / f"{package}.py").write_text(MADE.format(second=second))
    environment = {**os.environ, "PYTHONPATH": f"{FOLDER}{os.pathsep}{folder}"}
    command = [sys.executable, "-c", f"from {package} import Made; {SAY}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_class_is_the_same_with_code_that_was_kept_and_another_class_is_not(tmp_path: Path) -> None:
    package = f"kept_by_{os.getpid()}"
    try:
        first, again, other = (said(tmp_path, package, name) for name in ("second", "second", "another"))
        (kept,) = FOLDER.glob(f"__pycache__/methods.*.{package}")
        assert b"another" in kept.read_bytes()
    finally:
        for file in FOLDER.glob(f"__pycache__/methods.*.{package}*"):
            file.unlink()
    assert first == again == "Made(first=1, second='x') True True True ('first', 'second')\n"
    assert other == first.replace("second", "another")


TRAINS = """
import sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
losses = []
for compiles in (False, True, False):
    way = torch.compile(model, backend="eager") if compiles else model
    optimizer.zero_grad()
    losses.append(way(torch.ones(2, 4)).square().mean())
    losses[-1].backward()
    optimizer.step()
    print(type(sys.modules["torch._dynamo"]).__name__)
print(len({loss.item() for loss in losses}))
"""


@needs("torch")
def test_the_compiler_of_torch_is_loaded_when_something_compiles() -> None:
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    output = subprocess.check_output([sys.executable, "-c", TRAINS], env=environment, text=True)
    assert output == "Compiler\nmodule\nmodule\n1\n"
