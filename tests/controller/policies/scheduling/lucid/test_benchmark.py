"""The benchmark runs by both rule sets, and says what is wrong with its arguments.

`python -m benchmarks.schedulers.lucid`: predictions of what the models have not seen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.schedulers import lucid
from benchmarks.schedulers.lucid import PAPER, REPLICA, main, make_counts
from controller.policies.scheduling import BadTrace
from tests import effort
from tests.extras import needs


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.schedulers.lucid", *arguments])
    main()


@pytest.mark.parametrize(("arguments", "policies"), [((), PAPER), (("--replica",), REPLICA)])
def test_lucid_is_set_beside_baselines(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    policies: tuple[str, ...],
) -> None:
    pytest.importorskip("sklearn")
    run(monkeypatch, "schedule", *arguments, "--json")
    rows = {row["policy"]: row for row in json.loads(capsys.readouterr().out)}
    assert tuple(rows) == policies
    assert rows["tiresias"]["tiresias takes"] == 1
    assert rows["srtf"]["average_s"] < rows["fifo"]["average_s"]


def test_bad_arguments_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="profiles and pairs need each other"):
        run(monkeypatch, "schedule", "--profiles", "nowhere.csv")
    with pytest.raises(SystemExit, match=r"cluster_full_log\.csv: cannot be read"):
        run(monkeypatch, "schedule", "--folder", "nowhere")


learning = needs("interpret")


def ran(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> dict[str, float]:
    monkeypatch.setattr(sys, "argv", ["lucid", *arguments, "--json"])
    lucid.main()
    rows = json.loads(capsys.readouterr().out)
    return {f"{row['predicted']}, {row['by']}": row["mean absolute error"] for row in rows}


def write_series(path: Path, counts: list[float], *, column: str = "submit_gpu_job") -> Path:
    lines = [f"time,{column},submit_gpu_num"]
    for number, count in enumerate(counts):
        day, ten = divmod(number, 144)
        lines.append(f"2020-04-{day + 1:02} {ten // 6:02}:{ten % 6}0:00,{count:g},{2 * count:g}")
    path.write_text("\n".join(lines) + "\n")
    return path


@learning
@effort.if_thorough()
def test_arrivals_are_predicted_better_than_by_yesterday(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    series = write_series(tmp_path / "series.csv", list(make_counts(12)))
    errors = ran(monkeypatch, capsys, "throughput", "--series", str(series))
    for what in ("jobs", "GPUs"):
        model = errors[f"{what}, additive model"]
        assert model < 0.9 * errors[f"{what}, as a day before"]
        assert model < 0.9 * errors[f"{what}, the mean"]


@learning
def test_somebody_elses_predictions_say_what_is_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = list(make_counts(6))
    series = write_series(tmp_path / "series.csv", counts)
    theirs = tmp_path / "theirs.csv"
    lines = series.read_text().splitlines()
    theirs.write_text("\n".join(["time,pred_gpu_job,pred_gpu_num", *lines[-20:]]) + "\n")
    errors = ran(monkeypatch, capsys, "throughput", "--series", str(series), "--predicted", str(theirs))
    assert errors["jobs, their prediction"] == errors["GPUs, their prediction"] == 0


@learning
@effort.if_thorough()
def test_durations_are_predicted_better_than_by_means(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = ran(monkeypatch, capsys, "durations")
    assert errors["log duration, additive model"] < 0.5 * errors["log duration, mean of as many GPUs"]


@learning
def test_a_series_with_a_gap_is_refused(tmp_path: Path) -> None:
    path = write_series(tmp_path / "series.csv", [1.0] * 5)
    lines = path.read_text().splitlines()
    del lines[3]
    path.write_text("\n".join(lines))
    with pytest.raises(BadTrace, match=r"series.csv:4: column time: .*every ten minutes"):
        lucid.read_series(path, ["submit_gpu_job"])


@learning
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,x\n", "column submit_gpu_job: missing"),
        ("time,submit_gpu_job\n", "no lines"),
        ("time,submit_gpu_job\nyesterday,1\n", r":2: .*yesterday"),
        ("time,submit_gpu_job\n2020-04-01 00:00:00,many\n", ":2: .*many"),
    ],
)
def test_a_series_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "series.csv"
    path.write_text(text)
    with pytest.raises(BadTrace, match=message):
        lucid.read_series(path, ["submit_gpu_job"])
