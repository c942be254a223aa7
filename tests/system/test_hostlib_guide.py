"""The programs of docs/hostlib.md, torch.md and horovod.md run, with the commands that the pages give."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hostlib
from hostlib.collectives import KEYS
from tests.system.command import PATIENT, ROOT, here

PAGE, TORCH_PAGE, HOROVOD_PAGE = (
    (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("hostlib", "torch", "horovod")
)


def programs(page: str) -> dict[str, str]:
    """Return a page's programs by their commands; a block without a command goes on with the one before."""
    found: dict[str, str] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        first = re.match(r"# ((?:ina run|python) .*)\n", block)
        command = first[1] if first else list(found)[-1]
        found[command] = found.get(command, "") + block
    return found


PROGRAMS = programs(PAGE)


@pytest.mark.parametrize(
    ("command", "text"),
    [*PROGRAMS.items(), *programs(TORCH_PAGE).items(), *programs(HOROVOD_PAGE).items()],
    ids=lambda text: text[:40],
)
def test_a_program_of_a_guide_runs(command: str, text: str, tmp_path: Path) -> None:
    if "import torch" in text and importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    *words, name = shlex.split(command)
    script = tmp_path / name
    script.write_text(text)
    if words == ["python"]:
        subprocess.run([sys.executable, script], check=True, cwd=ROOT)
        return
    assert words[:2] == ["ina", "run"]
    assert words[-2:] == ["--", "python"]
    done = here(*words[1:-2], *PATIENT, "--", sys.executable, script)
    assert done.returncode == 0, done.stderr


def test_the_table_of_counters_has_each_key_once() -> None:
    table = PAGE.split("## Counters")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall("`(.*?)`", " ".join(rows))) == sorted(KEYS)


def test_the_programs_show_most_of_the_library() -> None:
    text = "".join(PROGRAMS.values())
    shown = {name for name in hostlib.__all__ if f"ina.{name}" in text}
    calls = {name for name in hostlib.__all__ if name.islower()}
    alike = {f"{name}_async" for name in ("reduce", "reduce_scatter", "all_gather", "broadcast")}
    assert calls - shown <= alike | {"is_initialized", "statistics", "window_for"}


def test_the_guide_names_every_error() -> None:
    errors = {
        name
        for name, value in vars(hostlib).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert {name for name in errors if f"`{name}`" not in PAGE} <= {"InaError"}


@pytest.mark.parametrize("page", [PAGE, TORCH_PAGE], ids=["hostlib", "torch"])
def test_the_contents_of_a_guide_are_its_sections(page: str) -> None:
    contents = re.findall(r"^- \[(.*?)\]\(#", page, re.MULTILINE)
    assert contents == re.findall(r"^## (.*)$", page, re.MULTILINE)


def test_the_guide_to_torch_names_every_variable() -> None:
    source = (ROOT / "hostlib" / "settings.py").read_text(encoding="utf-8")
    variables = set(re.findall(r"INA_[A-Z0-9_]+", source))
    assert len(variables) >= 5
    assert {name for name in variables if f"| `{name}` |" not in TORCH_PAGE} == set()
