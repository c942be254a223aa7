"""The tables of docs/results/schedulers.md: all policies, beside what the public simulators print.

`python -m benchmarks.reproduce --traces DIR` runs on the public traces below DIR (`muri/trace3.csv`,
`common/c1000/...`, `lucid/...`, `synergy/...`), without `--traces` on small ones that are shipped or made up.
`--output docs/results` writes page and rows; `--only coded,paper` makes some of the tables anew and leaves
the others as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.references import LUCID, MURI, SYNERGY
from benchmarks.reproduce_page import SHOW, Row, page
from benchmarks.rule_sets import STEPS
from benchmarks.schedulers import measure_grouping
from controller.scheduling import Cluster
from controller.simulator import measure, simulate
from controller.simulator.runs import RunFailed, Source, Task, run
from controller.simulator.setups import SETUPS
from controller.simulator.siblings import Background, family
from controller.simulator.traces import read

SAMPLE = Path(__file__).parents[1] / "tests" / "controller" / "simulator" / "small_muri.csv"
NAME = "schedulers"
FIRST = ("sample", "trace3")
"""The traces that all policies run on, ablations too."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace file and how many servers of eight GPUs it is for."""

    name: str
    path: Path
    nodes: int


@dataclass(frozen=True, slots=True)
class Options:
    """Where the public traces are, and whether to run what takes minutes."""

    folder: Path | None
    slow: bool

    def traces(self) -> list[Trace]:
        """Return the traces in Muri's format that are there."""
        if self.folder is None:
            return [Trace("sample", SAMPLE, 2)]
        muri = [
            Trace(name, self.folder / "muri" / f"{name}.csv", 8) for name in ("trace3", "trace3_pr", "trace1")
        ]
        return [*muri, Trace("c1000", self.folder / "common" / "c1000" / "muri.csv", 8)]

    def skips(self, trace: Trace, policy: str) -> bool:
        """Tell whether this takes minutes, and these are not wanted."""
        groups = "muri" in policy or "weave" in policy
        slow = (groups and trace.name == "trace1") or (policy == "gandiva" and trace.name not in FIRST)
        return slow and not self.slow


def main() -> None:
    """Make tables, print them, and write the page on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, metavar="DIR", help="folder with the public traces")
    parser.add_argument("--only", default=",".join(MAKE), help=f"tables, by comma: {', '.join(MAKE)}")
    parser.add_argument("--slow", action="store_true", help="also what takes minutes")
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"write {NAME}.md and {NAME}.json")
    parser.add_argument("--json", action="store_true", help="print the rows")
    given = parser.parse_args()
    wanted = given.only.split(",")
    for name in wanted:
        if name not in MAKE:
            parser.error(f"--only {name}: there are {', '.join(MAKE)}")
    stored = None if given.output is None else given.output / f"{NAME}.json"
    tables: dict[str, list[Row]] = {}
    if stored is not None and stored.exists() and len(wanted) < len(MAKE):
        tables = json.loads(stored.read_text(encoding="utf-8"))["tables"]
    for name in wanted:
        try:
            tables[name] = MAKE[name](Options(given.traces, given.slow))
        except (RunFailed, subprocess.CalledProcessError) as error:
            raise SystemExit(f"benchmarks.reproduce: {name}: {error}") from None
        if not given.json:
            print(f"\n{SHOW[name].title}\n\n{SHOW[name].table(tables[name])}", flush=True)
        if stored is not None:  # after each: some take minutes
            given.output.mkdir(parents=True, exist_ok=True)
            stored.write_text(_text(tables) + "\n", encoding="utf-8")
            (given.output / f"{NAME}.md").write_text(page(tables), encoding="utf-8")
    if given.json:
        print(_text(tables))


def _text(tables: Mapping[str, list[Row]]) -> str:
    return json.dumps({"name": NAME, "tables": tables}, indent=1)


def simulated(trace: Trace, policy: str) -> Row:
    """Return the figures of a policy on a trace. Raises RunFailed."""
    background = Background(Cluster.uniform(trace.nodes, 8, cpus=24, memory_gb=500))
    outcome = run(Task(policy, Source(trace.path), background))
    if sys.stderr.isatty():
        print(f"{trace.name}: {policy}, {outcome.wall_s:.1f} s", file=sys.stderr)
    return {**asdict(outcome.metrics), "trace": trace.name, "policy": policy, "took_s": outcome.cpu_s}


def coded(options: Options) -> list[Row]:
    """Run coded rules: policies with public figures and our own, and all on the first trace."""
    rows = []
    for trace in options.traces():
        for policy in [name for name in SETUPS if family(name) == "coded"]:
            theirs = MURI.get((trace.name, policy))
            wanted = theirs is not None or "weave" in policy or trace.name in FIRST
            if not wanted or options.skips(trace, policy):
                continue
            row = simulated(trace, policy)
            if theirs is not None:
                row |= {f"public_{key}": value for key, value in asdict(theirs).items()}
                row["off"] = abs(row["avg_jct_s"] / theirs.avg_jct_s - 1)
                row["times_faster"] = None if theirs.took_s is None else theirs.took_s / row["took_s"]
            rows.append(row)
    return rows


def paper(options: Options) -> list[Row]:
    """Run all policies that are as the papers have them; Muri's ablations on the first trace only."""
    first, *others = options.traces()
    names = [name for name in SETUPS if not family(name)]
    main_names = [name for name in names if not name.startswith("muri-s-")]
    pairs = [(first, name) for name in names] + [(trace, name) for trace in others for name in main_names]
    return [simulated(trace, name) for trace, name in pairs if not options.skips(trace, name)]


def rules(options: Options) -> list[Row]:
    """Go from the coded rules to the paper's, one difference at a time, on the first trace."""
    trace = options.traces()[0]
    cluster = Cluster.uniform(trace.nodes, 8)
    specs = read(trace.path, cluster)
    rows = []
    for policy, steps in STEPS.items():
        before: float | None = None
        for step, make in steps:
            chosen = make()
            metrics = measure(simulate(specs, cluster, chosen.policy, chosen.speed, chosen.rules))
            change = None if before is None else metrics.avg_jct_s / before - 1
            before = metrics.avg_jct_s
            rows.append(
                {**asdict(metrics), "trace": trace.name, "policy": policy, "step": step, "change": change}
            )
    return rows


def synergy(options: Options) -> list[Row]:
    """Run the allocators, and the public simulator's workload if its matrices are there."""
    rows = [{"table": "allocate", **row} for row in _module("synergy", "allocate", "--seeds", "3")]
    if options.folder is not None:
        matrix = options.folder / "synergy" / "sensitivity_matrix.csv"
        for row in _module("synergy", "published", "--matrix", matrix, "--policies", ",".join(SYNERGY)):
            theirs = SYNERGY[row["policy"]]
            public = {"public_average_h": theirs.avg_jct_s / 3600, "public_took_s": theirs.took_s}
            public["public_p99_h"] = None if theirs.p99_jct_s is None else theirs.p99_jct_s / 3600
            rows.append({"table": "published", **row, **public})
    return rows


def lucid(options: Options) -> list[Row]:
    """Run Lucid, by both rule sets if the public trace is there, and grow the packing tree."""
    if options.folder is None:
        rows = [{"table": "paper", **row} for row in _module("lucid", "schedule")]
        return rows + [{"table": "tree", **row} for row in _module("lucid", "tree")]
    files = options.folder / "lucid"
    measured = ("--profiles", files / "single_data.csv", "--pairs", files / "colocate_info.csv")
    log = ("--folder", options.folder / "common" / "c1000" / "lucid")
    rows = [{"table": "paper", **row} for row in _module("lucid", "schedule", *log, *measured)]
    for row in _module("lucid", "schedule", "--coded", *log, *measured):
        theirs = LUCID[row["policy"]]
        rows.append(
            {
                "table": "coded",
                **row,
                "public_average_s": theirs.avg_jct_s,
                "public_p99_s": theirs.p99_jct_s,
                "public_took_s": theirs.took_s,
            }
        )
    return rows + [{"table": "tree", **row} for row in _module("lucid", "tree", *measured)]


def grouping(options: Options) -> list[Row]:
    """Group jobs of four resources."""
    sizes = ((1000, 0), (1000, 8), (10_000, 0), (10_000, 8))
    return [asdict(measure_grouping(jobs, kinds=kinds)) for jobs, kinds in sizes]


MAKE: Mapping[str, Callable[[Options], list[Row]]] = {
    "coded": coded,
    "paper": paper,
    "rules": rules,
    "synergy": synergy,
    "lucid": lucid,
    "grouping": grouping,
}


def _module(name: str, *arguments: object) -> Sequence[Row]:
    """Run another benchmark with ``--json`` and return its rows."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[Row] = json.loads(done.stdout)
    return rows


if __name__ == "__main__":
    main()
