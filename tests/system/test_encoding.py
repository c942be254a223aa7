"""Output where the encoding lacks characters: every command ends as it does elsewhere, and can be read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ina.cli.encoding import instead

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
                *("explain", "alloc", "launch", "--jobs", "examples/allocation/jobs.toml"),
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
