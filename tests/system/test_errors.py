"""What the command line makes of errors: the line that people read, and the exit code."""

from __future__ import annotations

import pytest

from controller import OtherProgram
from ina.cli.errors import FAILED, INTERNAL, USAGE, verdict
from ina.runtime.errors import (
    AddressTaken,
    BadRun,
    GroupFailed,
    ProcessFailed,
    StagesNotMeasured,
    WorkerFailed,
)


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (BadRun("9 workers: too many"), "9 workers: too many", USAGE),
        (BadRun("want one of s2", setting="transit", value="'s9'"), "--transit 's9': want one of s2", USAGE),
        (BadRun("no", setting="worker_base"), "--worker-base: no", USAGE),
        (AddressTaken("cannot take UDP 1", chosen=False), "cannot take UDP 1", FAILED),
        (
            AddressTaken("cannot take UDP 1", chosen=True),
            "cannot take UDP 1; choose other ports with --worker-base",
            FAILED,
        ),
        (ProcessFailed("it was killed"), "it was killed", FAILED),
        (ProcessFailed("it did not start", status=3), "it did not start", 3),
        (ProcessFailed("it did not start", status=0), "it did not start", FAILED),
        (WorkerFailed("rank 0 failed"), "rank 0 failed", FAILED),
        (GroupFailed("the group broke"), "the group broke", FAILED),
        (StagesNotMeasured("too short"), "too short", FAILED),
        (OtherProgram("it runs 'shared'"), "it runs 'shared'; give --replace-program to replace it", USAGE),
        (FileNotFoundError(2, "No such file", "jobs.toml"), "jobs.toml: No such file", FAILED),
    ],
)
def test_an_error_is_told_in_terms_of_the_command(error: Exception, message: str, code: int) -> None:
    assert verdict(error) == (message, code)


def test_what_nobody_foresaw_is_told_with_its_traceback() -> None:
    message, code = verdict(KeyError("x"))
    assert code == INTERNAL
    assert "KeyError: 'x'" in message
