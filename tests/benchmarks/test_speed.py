"""``python -m benchmarks.speed``: figures of small runs, and what is refused."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks.speed.__main__ import app
from ina.cli.command import USAGE
from ina.cli.errors import verdict

SMALL = ("--radix", 4, "--jobs", 4, "-np", 4, "--iterations", 1, "--flows", 3)


def speed(*arguments: object) -> tuple[int, str, str]:
    """Run ``benchmarks.speed ARGUMENTS``: status, output, complaint."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, result.stdout, result.stderr
    complaint, code = verdict(result.exception)
    return code, result.stdout, complaint


def figures(*arguments: object) -> dict[str, float]:
    code, out, complaint = speed(*arguments, "--json")
    assert (code, complaint) == (0, "")
    metrics: dict[str, float] = json.loads(out)["metrics"]
    return metrics


def test_hops_are_counted_and_sums_are_made_in_switches() -> None:
    metrics = figures("simulation", *SMALL)
    assert (metrics["hosts"], metrics["switches"]) == (16, 20)
    # a job of four workers in two racks of a pod, or beside others: its packets pass four links at least
    assert metrics["packet_hops"] > 4 * 4 * 4 * 1024
    assert metrics["hops_per_s"] > 1000
    assert metrics["aggregated_share"] > 0.9


def test_the_table_has_the_figures_by_name() -> None:
    code, out, _ = speed("grouping", "--jobs", 4)
    assert code == 0
    assert "grouping: seed 0" in out
    assert "mean_efficiency" in out


@pytest.mark.parametrize("jobs", [1, 2, 3, 17])
@pytest.mark.parametrize("resources", [2, 4, 6])
@pytest.mark.parametrize("kinds", [0, 1])
def test_few_jobs_and_equal_ones_are_grouped(jobs: int, resources: int, kinds: int) -> None:
    metrics = figures("grouping", "--jobs", jobs, "--resources", resources, "--kinds", kinds, "--exact")
    assert 0 <= metrics["mean_efficiency"] <= 1
    assert 1 <= metrics["groups"] <= jobs
    assert all(-1e-9 <= value <= 1 for name, value in metrics.items() if name.startswith("loss_round_"))


def test_schedulers_are_measured_against_their_targets() -> None:
    found = figures("schedulers", "--share", "0.001")
    cases = [(each["policy"], each["jobs"]) for each in found.values()]  # type: ignore[index]
    assert cases == [("muri-s", 10), ("weave-s", 10), ("weave-s", 50), ("fifo-backfill", 10)]
    for each in found.values():
        assert each["ratio"] == pytest.approx(each["processor_s"] / each["target_s"])  # type: ignore[index]
        assert each["memory_bytes"] > 1 << 20  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("grouping", "--jobs", 0), "--jobs"),
        (("grouping", "--resources", 7), "--resources"),
        (("grouping", "--exact", "--jobs", 2001), "--exact with --jobs 2001: compares all pairs"),
        (("simulation", "--radix", 4, "--jobs", 5, "-np", 4), "hosts"),
        (("simulation", "--radix", 5), "want an even number"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: tuple[object, ...], complaint: str) -> None:
    code, out, said = speed(*arguments)
    assert (code, out) == (USAGE, "")
    assert complaint in said
