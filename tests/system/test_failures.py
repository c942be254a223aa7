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


def raised(rank: int, output: str) -> re.Match[str]:
    """Return the error that a worker reported, and how long it had waited."""
    for line in said_by(rank, output):
        if match := re.match(r"(?P<kind>\w+) after (?P<after>[\d.]+) s: (?P<message>.*)", line):
            assert float(match["after"]) < SURVIVOR_S
            return match
    pytest.fail(f"rank {rank} raised nothing:\n{output}")


def test_a_killed_worker_is_named_by_the_others() -> None:
    done = here("run", "-np", 4, *LANES, *worker("sums.py", "--victim", 2, "--kill-at", 20))
    assert done.returncode == 1
    assert "rank 2 killed by SIGKILL" in done.stderr
    for rank in (0, 1, 3):
        error = raised(rank, done.stdout)
        assert error["kind"] == "PeerLost"
        assert re.search(r"job \d+, PSN \d+\.\.\d+: lost rank 2", error["message"])


@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_a_worker_that_leaves_early_is_named_by_the_others_at_once(program: str) -> None:
    done = here(
        "run", "-np", 3, *LANES, "--program", program, "--timeout", 100,
        *worker("sums.py", "--victim", 1, "--exit-at", 20),
    )  # fmt: skip
    assert done.returncode == 1
    for rank in (0, 2):
        error = raised(rank, done.stdout)
        assert error["kind"] == "PeerLost"
        assert error["message"].endswith("lost rank 1: it left the job after 20 collectives")


def test_a_forked_process_of_a_rank_is_no_rank() -> None:
    """It was one: with the packet numbers of its parent, who was then handed the sums of what it had sent."""
    done = good("run", "-np", 2, "--lanes", 32, *PATIENT, *worker("odd_ranks.py", "forks"))
    for rank in range(2):
        assert done.stdout.count(f" was forked from rank {rank}, process ") == 5
        assert f"[{rank}] 10.0 10.0 10.0" in done.stdout


def test_a_worker_that_stops_calling_is_named_by_the_others() -> None:
    done = here(
        "run", "-np", 3, *LANES, "--timeout", SILENCE_S, "--straggler-timeout", SILENCE_S,
        *worker("sums.py", "--victim", 2, "--stall-at", 20),
    )  # fmt: skip
    assert done.returncode == 1
    for rank in (0, 1):
        error = raised(rank, done.stdout)
        assert error["kind"] == "PeerTimeout"
        assert re.search(r"job \d+, PSN \d+\.\.\d+: .*\brank(s)? 2\b", error["message"])


def test_ranks_that_submit_different_lengths_all_hear_of_it() -> None:
    done = here("run", "-np", 3, *LANES, *worker("sums.py", "--victim", 1, "--longer-by", 1))
    assert done.returncode == 1
    for rank in range(3):
        error = raised(rank, done.stdout)
        assert error["kind"] == "RanksDisagree"
        assert re.search(r"job \d+, PSN \d+\.\.\d+: .*disagree", error["message"])


@pytest.mark.parametrize(
    ("field", "value", "refusal"),
    [("rank", 0, "rank 0 .* has joined already"), ("size", 5, "has 3 ranks, not 5")],
)
def test_a_wrong_rank_or_size_is_refused_at_the_meeting_point(field: str, value: int, refusal: str) -> None:
    done = here("run", "-np", 3, *LANES, *worker("odd_ranks.py", "impostor", field, value, "watched"))
    assert done.returncode == 1
    assert re.search(refusal, done.stdout)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("rank", 0, "wrong rank"),
        ("size", 5, "wrong fan in"),
        ("job", 0, "unknown job"),
        ("lanes", 64, "bad lanes"),
    ],
)
def test_what_a_stranger_sends_is_refused_and_the_others_name_the_missing_rank(
    field: str, value: int, reason: str
) -> None:
    done = here(
        "run",
        "-np",
        3,
        *LANES,
        "--timeout",
        SILENCE_S,
        *worker("odd_ranks.py", "impostor", field, value, "alone"),
    )
    assert done.returncode == 1
    for rank in range(2):
        (said,) = said_by(rank, done.stdout)
        assert said.startswith("PeerTimeout")
        assert re.search(r"job \d+, PSN \d+\.\.\d+: .*\brank(s)? 2\b", said)
    assert re.search(rf"{reason} +│ +\d", done.stdout)


# --------------------------------------------------------------------- a job's token is in the enviro


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_the_token_is_in_no_command_line_and_no_output(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = here(
        "run", "-np", 2, "--lanes", 32, *options, *worker("odd_ranks.py", "telltale", tmp_path / "token")
    )
    token = (tmp_path / "token").read_text()
    assert done.returncode == 1
    assert len(token) == 64
    said = done.stdout + done.stderr
    assert "JobConfig(" in said
    assert "NonFiniteError" in said
    assert "shows the token" not in said
    assert token not in said
    if os.geteuid() == 0:
        assert "another user: cat: /proc/" in said
        assert "Permission denied" in said
