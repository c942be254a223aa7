"""Options beside a job file: what the file says holds, except where an option is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.vocabulary import Job, parse_jobs
from ina.runtime.job_file import Overrides
from tests.system.command import report

KEYS = {
    "slots": (16, 32),
    "window": (8, 24),
    "preempt": (False, True),
    "priority": (0, 200),
    "congestion": ("fixed", "aimd"),
    "numbers": ("exponent", "fixed"),
}
"""Two values of each key of the file that is an option too; the first of a choice is its default."""
SAYS = """
[[job]]
name = "silent"
workers = 1
command = "true"

[[job]]
name = "default"
workers = 1
command = "true"
window = 8
preempt = false
congestion = "fixed"
numbers = "exponent"

[[job]]
name = "other"
workers = 1
command = "true"
window = 24
preempt = true
congestion = "aimd"
numbers = "fixed"
"""
OF_FILE = {
    "silent": (None, False, "fixed", "exponent"),
    "default": (8, False, "fixed", "exponent"),
    "other": (24, True, "aimd", "fixed"),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("said", [None, 0, 1])
@pytest.mark.parametrize("given", [None, 0, 1])
def test_an_option_that_is_given_overrides_and_no_other(
    key: str, said: int | None, given: int | None
) -> None:
    line = "" if said is None else f"{key} = {json.dumps(KEYS[key][said])}"
    (entry,) = parse_jobs(f"[[job]]\nworkers = 1\n{line}")
    option = None if given is None else KEYS[key][given]
    found = Overrides(**{key: option}).of(entry)  # type: ignore[arg-type]
    default = getattr(Job(name="", workers=1), key)
    expected = default if said is None else KEYS[key][said]
    assert getattr(found, key) == (expected if given is None else option)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), OF_FILE),
        (
            ("--preempt", "--congestion", "a2tp", "--numbers", "fixed", "--window", 32),
            dict.fromkeys(OF_FILE, (32, True, "a2tp", "fixed")),
        ),
        (
            ("--no-preempt", "--congestion", "fixed", "--numbers", "exponent"),
            {name: (window, False, "fixed", "exponent") for name, (window, *_) in OF_FILE.items()},
        ),
    ],
    ids=["none", "all", "defaults"],
)
def test_run_takes_jobs_as_the_file_says_unless_options_are_given(
    options: tuple[object, ...], wanted: dict[str, tuple[object, ...]], tmp_path: Path
) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(SAYS)
    jobs = report("run", "--program", "shared", "--lanes", 32, "--jobs", file, *options)["setup"]["jobs"]
    keys = ("window", "preempt", "congestion", "numbers")
    assert {name: tuple(job[key] for key in keys) for name, job in jobs.items()} == wanted


@pytest.mark.parametrize(
    ("options", "wanted"), [((), (64, 16, 1024)), (("--slots", 32), (32, 32, 32))], ids=["none", "slots"]
)
def test_an_exclusive_job_has_the_slots_of_the_option_if_given(
    options: tuple[object, ...], wanted: tuple[int, ...], tmp_path: Path
) -> None:
    """Named, from a window, and neither."""
    file = tmp_path / "jobs.toml"
    job = "[[job]]\nworkers = 1\ncommand = 'true'\n"
    file.write_text(f"{job}slots = 64\n{job}window = 8\n{job}")
    jobs = report("run", "--lanes", 32, "--jobs", file, *options)["setup"]["jobs"]
    assert tuple(job["slots"] or 1024 for job in jobs.values()) == wanted
