"""``ina bench simulation``."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from ina.cli.commands import app
from ina.cli.errors import USAGE, verdict

SMALL = ("--radix", 4, "--jobs", 4, "-np", 4, "--iterations", 1, "--flows", 3)


def bench(*arguments: object) -> tuple[int, str, str]:
    """Run ``ina bench simulation ARGUMENTS``: status, output, complaint."""
    result = CliRunner().invoke(app, ["bench", "simulation", *map(str, arguments)])
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, result.stdout, result.stderr
    complaint, code = verdict(result.exception)
    return code, result.stdout, complaint


def test_hops_are_counted_and_sums_are_made_in_switches() -> None:
    code, out, complaint = bench(*SMALL, "--json")
    assert (code, complaint) == (0, "")
    metrics = json.loads(out)["metrics"]
    assert (metrics["hosts"], metrics["switches"]) == (16, 20)
    # a job of four workers in two racks of a pod, or beside others: its packets pass four links at least
    assert metrics["packet_hops"] > 4 * 4 * 4 * 1024
    assert metrics["hops_per_s"] > 1000
    assert metrics["aggregated_share"] > 0.9


def test_the_table_has_the_same_figures() -> None:
    code, out, _ = bench(*SMALL)
    assert code == 0
    assert "fat tree of 16 hosts and 20 switches, 4 jobs of 4, 3 flows" in out
    assert "packet hops a second of processor time" in out


def test_more_workers_than_hosts_are_refused() -> None:
    code, _, complaint = bench("--radix", 4, "--jobs", 5, "-np", 4)
    assert code == USAGE
    assert "hosts" in complaint
    code, _, complaint = bench("--radix", 5)
    assert code == USAGE
    assert "want an even number" in complaint
