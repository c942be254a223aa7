"""Without torch, or with one of another version, `hostlib.torch` says what it needs; hostlib needs none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import hostlib
from hostlib.meet.connections import private_folder

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ImportError('no such thing')", "cannot import any (no such thing): pip install 'ina[torch]'"),
        ("__version__ = '2.12.1+cpu'", "needs torch 2.13 to 2.14, this is torch 2.12.1+cpu"),
        ("__version__ = 'strange'", "needs torch 2.13 to 2.14, this is torch strange"),
        ("", "needs torch 2.13 to 2.14, this is torch unknown"),
    ],
)
def test_another_torch_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", "import hostlib; hostlib.init(); import hostlib.torch"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "ImportError: hostlib.torch needs torch 2.13 to 2.14" in done.stderr
    assert message in done.stderr


def test_a_newer_torch_is_tried_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '3.0'")
    (tmp_path / "torch" / "distributed.py").write_text("def is_available(): return False")
    done = subprocess.run(
        [sys.executable, "-c", "import hostlib.torch"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert "UserWarning: hostlib.torch needs torch 2.13 to 2.14; torch 3.0 has not been tried" in done.stderr
    assert "built with torch.distributed, which this torch 3.0 is not" in done.stderr


def test_what_ranks_find_is_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = private_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o750)
    with pytest.raises(hostlib.ConfigError, match="must be a folder that only user"):
        private_folder()
