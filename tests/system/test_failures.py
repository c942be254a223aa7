"""Invariant 2: when a job cannot go on, every survivor says why, soon; and a job's token is shown by none."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.system.command import PATIENT, good, here, said_by, worker

# --------------------------------------------------------------------- invariant 2


SURVIVOR_S = 60.0  # a tenth of what a rank that lives is waited for; they need about one second
SILENCE_S = 4
"""More than the switch and ranks that live may have to wait for a processor: they are not to be named."""
LANES = ("--lanes", "32")
WHERE = r"job \d+, PSN \d+\.\.\d+: "


def raised(rank: int, output: str, kind: str) -> str:
    """Return the message of the error of this kind that a worker reported, soon."""
    for line in said_by(rank, output):
        if match := re.match(r"(?P<kind>\w+) after (?P<after>[\d.]+) s: (?P<message>.*)", line):
            assert float(match["after"]) < SURVIVOR_S
            assert match["kind"] == kind
            return match["message"]
    pytest.fail(f"rank {rank} raised nothing:\n{output}")


LEFT = ("--victim", 1, "--exit-at", 20)
SILENT = ("--timeout", SILENCE_S, "--straggler-timeout", SILENCE_S)


@pytest.mark.parametrize(
    ("options", "fault", "survivors", "kind", "message", "errors"),
    [
        pytest.param(
            (4,), ("--victim", 2, "--kill-at", 20), (0, 1, 3),
            "PeerLost", f"{WHERE}lost rank 2", "rank 2 killed by SIGKILL",
            id="is killed",
        ),
        *(
            pytest.param(
                (3, "--program", program, "--timeout", 100), LEFT, (0, 2),
                "PeerLost", r"lost rank 1: it left the job after 20 collectives\Z", "",
                id=f"leaves early, {program}",
            )
            for program in ("exclusive", "shared")
        ),
        pytest.param(
            (3, *SILENT), ("--victim", 2, "--stall-at", 20), (0, 1),
            "PeerTimeout", rf"{WHERE}.*\brank(s)? 2\b", "",
            id="stops calling",
        ),
        pytest.param(
            (3,), ("--victim", 1, "--longer-by", 1), (0, 1, 2),
            "RanksDisagree", f"{WHERE}.*disagree", "",
            id="submits another length",
        ),
    ],
)  # fmt: skip
def test_the_others_name_a_worker_that(
    options: tuple[object, ...],
    fault: tuple[object, ...],
    survivors: tuple[int, ...],
    kind: str,
    message: str,
    errors: str,
) -> None:
    done = here("run", "-np", *options, *LANES, *worker("sums.py", *fault), status=1)
    assert errors in done.stderr
    for rank in survivors:
        assert re.search(message, raised(rank, done.stdout, kind))


def test_a_forked_process_of_a_rank_is_no_rank() -> None:
    """It was one: with the packet numbers of its parent, who was then handed the sums of what it had sent."""
    done = good("run", "-np", 2, "--lanes", 32, *PATIENT, *worker("odd_ranks.py", "forks"))
    for rank in range(2):
        assert done.stdout.count(f" was forked from rank {rank}, process ") == 5
        assert f"[{rank}] 10.0 10.0 10.0" in done.stdout


@pytest.mark.parametrize(
    ("field", "value", "refusal"),
    [("rank", 0, "rank 0 .* has joined already"), ("size", 5, "has 3 ranks, not 5")],
)
def test_a_wrong_rank_or_size_is_refused_at_the_meeting_point(field: str, value: int, refusal: str) -> None:
    impostor = worker("odd_ranks.py", "impostor", field, value, "watched")
    assert re.search(refusal, here("run", "-np", 3, *LANES, *impostor, status=1).stdout)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("rank", 0, "wrong rank"),
        ("job", 0, "unknown job"),
    ],
)
def test_what_a_stranger_sends_is_refused_and_the_others_name_the_missing_rank(
    field: str, value: int, reason: str
) -> None:
    """Of its job, and of none; all reasons by which packets are refused are in `test_refusals.py`."""
    impostor = worker("odd_ranks.py", "impostor", field, value, "alone")
    done = here("run", "-np", 3, *LANES, "--timeout", SILENCE_S, *impostor, status=1)
    for rank in range(2):
        (said,) = said_by(rank, done.stdout)
        assert said.startswith("PeerTimeout")
        assert re.search(rf"{WHERE}.*\brank(s)? 2\b", said)
    assert re.search(rf"{reason} +│ +\d", done.stdout)


# --------------------------------------------------------------------- a job's token is in the enviro


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_the_token_is_in_no_command_line_and_no_output(tmp_path: Path, options: tuple[str, ...]) -> None:
    telltale = worker("odd_ranks.py", "telltale", tmp_path / "token")
    done = here("run", "-np", 2, "--lanes", 32, *options, *telltale, status=1)
    token = (tmp_path / "token").read_text()
    assert len(token) == 64
    said = done.stdout + done.stderr
    assert "JobConfig(" in said
    assert "NonFiniteError" in said
    assert "shows the token" not in said
    assert token not in said
    if os.geteuid() == 0:
        assert "another user: cat: /proc/" in said
        assert "Permission denied" in said
