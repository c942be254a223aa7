"""The commands that reproduce the results, on what is shipped."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.schedulers import lucid, reproduce, sharing, short_jobs
from benchmarks.schedulers.references import MURI, SYNERGY
from benchmarks.schedulers.reproduce_page import SHOW, grid, pivot
from benchmarks.schedulers.trace_files import traces
from bmv2_topos.harness.page import END, mark_of


def test_the_table_of_replicas_is_exact_on_the_shipped_trace() -> None:
    rows = reproduce.replicas(Namespace(traces=None, slow=False))
    rows = [row for row in rows if "off" in row]
    assert len(rows) == sum(trace == "sample" for trace, _ in MURI)
    for row in rows:
        assert row["off"] < 2e-6  # the references have two decimals
        assert row["p99_jct_s"] == pytest.approx(row["public_p99_jct_s"], abs=0.006)


def test_a_table_leaves_gaps_where_nothing_is_known() -> None:
    columns = (("a", "a", "{:.1f}"), ("b", "b", "{}"))
    assert grid([{"a": 1.25, "b": None}, {"a": 2}], columns).splitlines()[2:] == ["| 1.2 |  |", "| 2.0 |  |"]


def test_a_pivot_has_a_row_for_each_combination() -> None:
    rows = [{"a": 1, "b": "x", "c": 5}, {"a": 1, "b": "y", "c": 6}, {"a": 2, "b": "y", "c": 7}]
    assert pivot(rows, ["a"], "b") == [{"a": 1, "x c": 5, "y c": 6}, {"a": 2, "y c": 7}]


def test_the_page_tells_in_how_many_mixes_tune_is_close_and_fast() -> None:
    common = {"table": "allocate", "matrices": "made-up", "sizes": "1", "of_bound": 0.8}
    figures = [("20,70,10", 0.95, 300), ("33,33,33", 0.89, 150)]
    rounds = [
        {**common, "mix": mix, "allocator": name, "of_opt": of_opt, "worst_of_opt": 0.8, "opt_takes_times": n}
        for mix, of_opt, n in figures
        for name in ("tune", "tune+top-up")
    ]
    whole = {"table": "end-to-end", "matrices": "made-up", "trace": "t", "allocator": "tune"}
    text = SHOW["synergy"]([*rounds, whole])
    assert (
        "`tune` is within 10 % of OPT on average in 1 of 2 (least 0.890)"
        " and at least 200 times as fast in 1 (least 150)." in " ".join(text.split())
    )
    assert "measured" not in text
    assert "beside the public simulator" not in text


def test_every_workload_of_synergy_has_references() -> None:
    found = reproduce.by_workload(SYNERGY)
    assert [workload.name for workload in found] == ["philly-derived", "static", "dynamic", "c1000"]
    assert sum(len(policies.split(",")) for policies in found.values()) == len(SYNERGY)
    static = next(workload for workload in found if workload.static)
    trace = Path("t") / static.replay
    assert static.arguments(Path("t")) == ["--servers", 4, "--replay", trace, "--static"]


def test_a_folder_without_traces_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", "--traces", str(tmp_path)])
    with pytest.raises(SystemExit, match=f"--traces {tmp_path}: no muri/trace3.csv or the like there"):
        reproduce.main()


def test_a_part_of_the_page_is_filled_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "schedulers.md"
    page.write_text(f"before\n{mark_of('replicas')}\nold\n{END}\n{mark_of('paper')}\nkept\n{END}\nafter\n")
    monkeypatch.setattr(sys, "argv", ["reproduce", "--only", "replicas", "--output", str(tmp_path)])
    reproduce.main()
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"\n{mark_of('paper')}\nkept\n{END}\nafter\n")
    assert "old" not in text
    assert "| sample | `muri-replica:srtf` |" in text


def test_weave_gains_on_the_shipped_trace() -> None:
    (trace,) = traces(None)
    for rules in ("", "muri-replica:"):
        alone, theirs, ours = (
            reproduce.simulated(trace, f"{rules}{name}") for name in ("srsf", "muri-s", "weave-s")
        )
        assert ours["avg_jct_s"] < min(theirs["avg_jct_s"], alone["avg_jct_s"])
        assert ours["avg_slowdown"] < theirs["avg_slowdown"]
        assert ours["p99_jct_s"] < theirs["p99_jct_s"]


def test_short_jobs_are_told_by_length_and_beside_the_others(tmp_path: Path) -> None:
    rows = short_jobs.measured(6, 1, tmp_path)
    assert len(rows) == 2 * 3 * (len(short_jobs.LOADS) + len(short_jobs.SHORT_LOADS)) * len(short_jobs.SEEDS)
    text = short_jobs.text(rows)
    assert "| load 0.6 | `weave-s` |" in text
    assert "`weave-s` on 20 workloads of one-GPU jobs of 30 to 600 s:" in text


def run(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [benchmark.__name__, *arguments])
    benchmark.main()


@pytest.mark.parametrize(("arguments", "policies"), [((), lucid.PAPER), (("--replica",), lucid.REPLICA)])
def test_lucid_is_set_beside_baselines(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    policies: tuple[str, ...],
) -> None:
    pytest.importorskip("sklearn")
    run(lucid, monkeypatch, "schedule", *arguments, "--json")
    rows = {row["policy"]: row for row in json.loads(capsys.readouterr().out)}
    assert tuple(rows) == policies
    assert rows["tiresias"]["tiresias takes"] == 1
    assert rows["srtf"]["average_s"] < rows["fifo"]["average_s"]


def test_bad_arguments_of_lucid_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="--profiles and --pairs need each other"):
        run(lucid, monkeypatch, "schedule", "--profiles", "nowhere.csv")
    with pytest.raises(SystemExit, match=r"cluster_full_log\.csv: cannot be read"):
        run(lucid, monkeypatch, "schedule", "--folder", "nowhere")


def test_sharing_is_compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    few = ("--seeds", "1", "--jobs", "100", "--load", "3", "--samples", "40")
    run(sharing, monkeypatch, "schedule", *few, "--only", "fifo,sharing", "--json")
    fifo, ours = json.loads(capsys.readouterr().out)
    assert fifo["policy"] == "fifo"
    assert ours["times ours"] == 1
    assert 0 < fifo["work"] < ours["work"]


def test_every_ablation_of_sharing_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    few = ("--seeds", "1", "--jobs", "30", "--load", "3", "--samples", "40")
    run(sharing, monkeypatch, "schedule", *few, "--only", ",".join(sharing.ALL), "--json")
    assert [row["policy"] for row in json.loads(capsys.readouterr().out)] == list(sharing.ALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("schedule", "--only", "best", "--seeds", "1", "--samples", "9"),
            "policy 'best' is unknown; known are fifo, ",
        ),
        (
            ("models", "--references", "99", "--seeds", "1"),
            "reference jobs of 20 kinds; 1 to 20 are possible",
        ),
        (("models", "--samples", "0"), "0 samples of 20 kinds"),
        (("models", "--lucid", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_bad_arguments_of_sharing_are_named(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr("benchmarks.schedulers.sharing.MODEL_COUNTS", ())
    with pytest.raises(SystemExit, match=message):
        run(sharing, monkeypatch, *arguments)
