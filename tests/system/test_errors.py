"""What the command line makes of errors: the line that people read, and the exit code."""

from __future__ import annotations

import pytest

from controller import OtherProgram
from ina.cli.errors import FAILED, INTERNAL, USAGE, verdict
from ina.runtime.errors import (
    AddressTaken,
    BadRun,
    GroupBroken,
    NotMeasured,
    ProcessFailed,
    WorkerFailed,
)


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (BadRun("9 workers: too many"), "9 workers: too many", USAGE),
        (BadRun("'s9': there are s2, s3", setting="transit"), "--transit 's9': there are s2, s3", USAGE),
        (BadRun("h:1: no", setting="worker_base"), "--worker-base h:1: no", USAGE),
        (AddressTaken("cannot take UDP 1", chosen=False), "cannot take UDP 1", FAILED),
        (AddressTaken("cannot take UDP 1", chosen=True), "cannot take UDP 1; see --worker-base", FAILED),
        (ProcessFailed("it was killed"), "it was killed", FAILED),
        (ProcessFailed("it did not start", status=3), "it did not start", 3),
        (ProcessFailed("it did not start", status=0), "it did not start", FAILED),
        (WorkerFailed("rank 0 failed"), "rank 0 failed", FAILED),
        (GroupBroken("the group broke"), "the group broke", FAILED),
        (NotMeasured("too short"), "too short", FAILED),
        (OtherProgram("it runs 'shared'"), "it runs 'shared'; --replace-program replaces it", USAGE),
        (FileNotFoundError(2, "No such file", "jobs.toml"), "jobs.toml: No such file", FAILED),
    ],
)
def test_an_error_is_told_in_terms_of_the_command(error: Exception, message: str, code: int) -> None:
    assert verdict(error) == (message, code)


def test_what_nobody_foresaw_is_told_with_its_traceback() -> None:
    message, code = verdict(KeyError("x"))
    assert code == INTERNAL
    assert "KeyError: 'x'" in message
