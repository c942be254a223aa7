"""Disks that are full: whoever writes a file says which one could not be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ina.cli.commands import app
from ina.cli.errors import verdict

ROOT = Path(__file__).parents[2]
FULL = Path("/dev/full")
"""Takes no byte."""

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this kernel has no /dev/full")
ALLOCATION = ROOT / "examples" / "allocation"
BATCH = ("--jobs", str(ALLOCATION / "batch.yaml"), "--cluster", str(ALLOCATION / "fabric.toml"))
SIMULATE = ("schedule", "simulate", "--generate", "5", "--policy", "fifo", "--processes", "1")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("place", *BATCH, "--write", "full.json"), "full.json"),
        ((*SIMULATE, "--jobs-csv", "full.csv"), "full.csv"),
        ((*SIMULATE, "--output", "folder"), "folder/metrics.json"),
        (("schedule", "sweep", "--generate", "5", "--policy", "fifo", "--output", "full.json"), "full.json"),
    ],
    ids=["place", "jobs-csv", "simulate", "sweep"],
)
def test_results_that_do_not_fit_on_the_disk_name_their_file(
    words: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to(FULL)
    with pytest.raises(OSError, match="No space left on device") as caught:
        app(list(words), standalone_mode=False)
    assert verdict(caught.value) == ("/dev/full: No space left on device", 1)
