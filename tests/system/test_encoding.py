"""Output where the encoding lacks characters: every command ends as it does elsewhere, and can be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ina.cli.screen import instead

ROOT = Path(__file__).parents[2]


def ina(encoding: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "ina", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "200"},
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topo", "show", "leaf-spine"), "2 us"),
        (
            (
                *("schedule", "plan", "--jobs", "examples/schedule/jobs.toml"),
                *("--cluster", "examples/schedule/cluster.toml"),
            ),
            "0 ",
        ),
        (("sim", "examples/three_jobs.toml", "--explain"), "us"),
        (
            (
                *("alloc", "--explain", "launch", "--jobs", "examples/allocation/jobs.toml"),
                *("--cluster", "examples/allocation/rack.toml"),
            ),
            "20 us",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_what_ascii_lacks_is_written_otherwise(arguments: tuple[str, ...], said: str) -> None:
    done = ina("ascii", *arguments)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout.decode("ascii")
    assert b"Traceback" not in done.stderr


FILES = ("--jobs", "examples/cluster/two_jobs.toml", "--cluster", "examples/cluster/two.toml")


def test_what_commands_of_files_and_runs_print_is_ascii_where_that_is_asked_for(tmp_path: Path) -> None:
    """The same at once for commands that print other tables: one place writes for all of them."""
    seen = str(tmp_path / "seen")
    sums = ("--", sys.executable, "tests/system/workers/exact.py", "1", "2000")
    for arguments in (
        ("alloc", *FILES),
        ("place", *FILES),
        ("route", *FILES),
        ("cluster", "simulate", *FILES),
        ("schedule", "policies"),
        ("sim", "examples/three_jobs.toml", "--iterations", "1", "--sweep", "slots=16,64"),
        ("soak", "--schedules", "2", "--processes", "1"),
        ("compile", "p4src/shared.p4", "--explain"),
        ("scenario", "list"),
        ("run", "-np", "2", "--lanes", "32", "--pcap", seen, *sums),
        ("trace", seen),
        ("trace", seen, "--psn", "0"),
        ("trace", seen, "--slots"),
        ("run", "--help"),
    ):
        done = ina("ascii", *arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        assert done.stdout.isascii(), arguments
        assert len(done.stdout) > 40, arguments
        assert done.stderr.isascii(), arguments


def test_an_encoding_that_has_the_character_gets_it() -> None:
    done = ina("latin-1", "topo", "show", "leaf-spine")
    assert done.returncode == 0
    assert "2 µs" in done.stdout.decode("latin-1")


def test_names_of_users_do_not_end_a_command() -> None:
    done = ina("ascii", "topo", "show", "数.toml")
    assert done.returncode == 2
    assert b"\\u6570.toml" in done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [("µs", "us"), ("a → b", "a -> b"), ("┌─┐", "+-+"), ("é", "e"), ("数", "\\u6570"), ("10⁻³", "10-3")],
)
def test_signs_have_a_stand_in(text: str, shown: str) -> None:
    assert instead(text) == shown
