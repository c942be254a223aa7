"""Studies: what the harness makes of a function, the parameters to sweep and what to measure."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bmv2_topos.harness import BadExperiment, Study, compare, load, read, sweep, with_seeds, write

ROOT = Path(__file__).parents[2]


def run(size: int, kind: str = "a", seed: int = 1, fast: bool = True) -> float:
    return size * seed * (1.0 if kind == "a" else 2.0) * (1.0 if fast else 3.0)


STUDY = Study(
    title="Times",
    run=run,
    sweep={"size": [1, 10], "kind": ["a", "b"]},
    measure={"time (s)": lambda found: found, "kind of": lambda found: "large" if found > 5 else "small"},
    seeds=3,
    ablations={"slow": {"fast": False}},
)
TIMES = STUDY.experiment("times", "times.py")


def test_every_combination_is_run_with_every_seed_and_in_each_ablation() -> None:
    runs = TIMES.scenarios(False)
    assert len(runs) == 2 * 2 * 2 * 3
    assert runs[0].labels == {"variant": "full", "size": 1, "kind": "a", "seed": 1}
    assert len({tuple(each.labels.items()) for each in runs}) == len(runs)
    assert len(TIMES.scenarios(True)) == 2 * 2 * 2
    assert len(with_seeds(runs, 2)) == 2 * 2 * 2 * 2


def test_a_table_has_medians_and_ranges_over_the_seeds() -> None:
    rows = sweep(TIMES, TIMES.scenarios(False))
    assert rows[0] == {
        "variant": "full",
        "size": 1,
        "kind": "a",
        "seed": 1,
        "time (s)": 1.0,
        "kind of": "small",
    }
    full, slow = TIMES.tables(rows).split("### Slow")
    assert "| size | kind | time (s) | kind of |" in full
    assert "| 1 | a | 2 (1..3) | small |" in full
    assert "| 10 | b | 40 (20..60) | large |" in full
    assert "| 1 | a | 6 (3..9) | small, large |" in slow
    assert TIMES.findings(rows) == "- time (s), slow: 3 times as much as full."


def test_the_files_are_rows_a_page_and_a_plot_of_each_quantity(tmp_path: Path) -> None:
    rows = sweep(TIMES, TIMES.scenarios(False))
    files = write(TIMES, rows, tmp_path, command="ina experiment times.py")
    drawn = ["times-time-s.svg"] if importlib.util.find_spec("matplotlib") else []
    assert [file.name for file in files] == ["times.json", "times.md", *drawn]
    page = (tmp_path / "times.md").read_text()
    assert "Swept: `size` (1, 10), `kind` (a, b); 3 seeds. *Slow*: `fast` is False." in page
    for name in drawn:
        plot = (tmp_path / name).read_text()
        assert "kind b, slow" in plot


def test_without_ablations_or_seeds_there_are_no_columns_for_them() -> None:
    plain = replace(STUDY, ablations={}, seeds=1, run=lambda size, kind: size).experiment("plain", "plain.py")
    rows = sweep(plain, plain.scenarios(False))
    assert [*rows[0]] == ["size", "kind", "time (s)", "kind of"]
    assert "Full" not in plain.tables(rows)
    assert plain.findings(rows) == ""


def test_an_ablation_may_fix_what_is_swept() -> None:
    fixed = replace(STUDY, ablations={"one size": {"size": 5}}).experiment("fixed", "fixed.py")
    labels = [each.labels for each in fixed.scenarios(True) if each.labels["variant"] == "one size"]
    assert labels == [
        {"variant": "one size", "size": 5, "kind": "a", "seed": 1},
        {"variant": "one size", "size": 5, "kind": "b", "seed": 1},
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sweep": {"sice": [1]}}, "sweep: run takes no parameter 'sice'; it takes size, kind, seed, fast"),
        ({"sweep": {"size": []}}, r"sweep: size is \[\]; it must be a list of one value or more"),
        ({"sweep": {"size": "12"}}, "sweep: size is '12'; it must be a list of one value or more"),
        ({"sweep": {"size": [1, 2, 1]}}, "sweep: size has a value twice: 1, 2, 1"),
        ({"sweep": {"kind": ["a"]}}, "run takes 'size', which has no default and is not in sweep"),
        ({"ablations": {"slow": {"quick": 1}}}, "ablation 'slow': run takes no parameter 'quick'"),
        ({"ablations": {"full": {}}}, "'full' is what the variant without any ablation is called"),
        ({"seeds": 0}, "seeds is 0; it must be 1 or more"),
        ({"run": lambda size, kind, fast=True: 1.0}, "seeds is 3, and run takes no parameter 'seed'"),
        ({"measure": {}}, "measure is empty; it must have a column or more"),
        ({"measure": {"size": lambda found: 1}}, "measure: 'size' is a parameter, too"),
    ],
)
def test_what_makes_no_sense_is_named(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadExperiment, match=f"^own.py: .*{complaint}"):
        replace(STUDY, **changes).experiment("own", "own.py")  # type: ignore[arg-type]


def test_the_example_has_about_twenty_lines_and_runs() -> None:
    example = ROOT / "examples" / "losses.py"
    assert sum(bool(line.strip()) for line in example.read_text().splitlines()) <= 25
    found = load(str(example))
    rows = sweep(found, found.scenarios(True), quick=True)
    assert len(rows) == 2 * 2 * 2
    assert all(row["packets sent again"] for row in rows if row["loss"])
    assert found.findings(rows).count("without probes") == 2


def test_the_page_shows_the_example() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "experiments.md").read_text(), re.DOTALL)
    assert code in (ROOT / "examples" / "losses.py").read_text()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sweep": {"size": [[1], [2]]}}, r"size has \[1\], which cannot name a row"),
        ({"sweep": {"size": [{"a": 1}]}}, "size has {'a': 1}, which cannot name a row"),
        ({"sweep": {"size": [(1, 2)]}}, r"size has \(1, 2\), which cannot name a row"),
        ({"sweep": {"size": [1.0, float("nan")]}}, "size has nan, which cannot name a row"),
        ({"ablations": {"odd": {"size": [1]}}}, r"ablation 'odd': size is \[1\], which cannot name a row"),
        ({"sweep": ["size"]}, "sweep is of type list; it must be a dict"),
        ({"measure": {"m": 3}}, "measure 'm' is of type int; it must be a function"),
        ({"measure": None}, "measure is None; it must be a dict"),
        ({"run": None}, "run is None; it must be a function"),
        ({"seeds": "3"}, "seeds is of type str; it must be a whole number"),
        ({"measure": {5: float}}, "measure has the name 5; it must be a text"),
        ({"ablations": {5: {"size": 1}}}, "ablations has the name 5; it must be a text"),
        ({"title": 5}, "title is 5; it must be a text"),
        ({"about": None}, "about is None; it must be a text"),
        ({"ablations": {"slow": 3}}, "ablation 'slow' is of type int; it must be a dict of parameters"),
    ],
)
def test_parts_of_the_wrong_kind_are_named(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadExperiment, match=complaint):
        replace(STUDY, **change).experiment("x", "x.py")  # type: ignore[arg-type]


def found(size: int, seed: int = 1) -> float:
    return (float("nan"), float("inf"), size)[seed - 1]


def test_what_is_no_number_is_null_and_reproduced(tmp_path: Path) -> None:
    study = Study(title="t", run=found, sweep={"size": [1]}, measure={"a|b": lambda value: value}, seeds=3)
    one = study.experiment("x", "")
    rows = sweep(one, one.scenarios(False))
    assert [row["a|b"] for row in rows] == [None, "inf", 1]
    write(one, rows, tmp_path, command="c")
    text = (tmp_path / "x.json").read_text()
    assert not re.search("NaN|Infinity", text)
    published, _ = read(one, tmp_path)
    assert compare(one, published, count=3) == []
    assert "| size | a\\|b |" in (tmp_path / "x.md").read_text()
    assert "| 1 | 1, -, inf |" in (tmp_path / "x.md").read_text()
