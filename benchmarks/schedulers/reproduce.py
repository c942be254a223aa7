"""The tables of docs/results/schedulers.md: all policies, beside the public simulators' results.

`python -m benchmarks.schedulers.reproduce --traces DIR` runs on the public traces below DIR
(`muri/trace3.csv`, `common/c1000/...`, `lucid/...`, `synergy/...`), without `--traces` on small ones that are
shipped or made up. `--output docs/results` fills the page; `--only replicas,paper` makes some of the
tables anew and leaves the others as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from benchmarks.fill import fill, option, parse_options
from benchmarks.replicas import known as known_replicas
from benchmarks.schedulers.references import LUCID, MURI, SYNERGY
from benchmarks.schedulers.reproduce_page import SHOW, ResultRow
from benchmarks.schedulers.trace_files import Trace, resolved, takes_minutes, traces, with_ablations
from controller.policies.family import SimulationConfig
from controller.policies.registry import family, known
from controller.simulator.runs import SimulationFailed, SimulationTask, Source, run
from controller.vocabulary import Cluster

NAME = "schedulers"
FIRST = ("sample", "trace3")
"""The traces for all policies, ablations too."""
PAPER = (*FIRST, "trace3_pr", "trace1", "c1000")
"""The traces for the papers' rules."""
BY_DEADLINE = ("edf", "on-time")
"""Left out: these traces have no deadlines, without which these policies are srsf."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A run of Synergy's public simulator: a replay trace below the folder of traces, or "" for its own."""

    name: str
    servers: int
    replay: str = ""
    static: bool = False

    def arguments(self, folder: Path) -> list[object]:
        """Return the arguments of `benchmarks.schedulers.synergy published` for it."""
        replay = ["--replay", folder / self.replay] if self.replay else []
        return ["--servers", self.servers, *replay, *(["--static"] if self.static else [])]


WORKLOADS = (
    Workload("philly-derived", 16),
    Workload("static", 4, "synergy/static_100job_6_3_1100.0", static=True),
    Workload("dynamic", 4, "synergy/dynamic_srtf.log"),
    Workload("c1000", 8, "common/c1000/synergy.csv"),
)
MIXES = ("20,70,10", "30,60,10", "60,30,10", "33,33,33", "50,0,50")
"""Weights of image, text and sound jobs; the first is the published default."""
SIZES = ("1", "1,1,1,1,2,4,8,16")
LOADS = (0, 8, 10)
"""Jobs per hour on 128 GPUs; 0: all arrive at once."""


def main() -> None:
    """Make tables, print them, and write the page on request."""
    options = parse_options(
        __doc__,
        option("--traces", type=Path, metavar="DIR", help="read the public traces in this folder"),
        option("--only", default=",".join(MAKE), help=f"make these tables, by comma: {', '.join(MAKE)}"),
        option("--slow", action="store_true", help="also run the slow parts (minutes)"),
        option("--output", type=Path, metavar="DIR", help=f"write into {NAME}.md"),
        option("--json", action="store_true", help="print the rows"),
    )
    wanted = options.only.split(",")
    for name in wanted:
        if name not in MAKE:
            raise SystemExit(f"benchmarks.schedulers.reproduce: --only {name}: there are {', '.join(MAKE)}")
    rows: dict[str, list[ResultRow]] = {}
    for name in wanted:
        try:
            rows[name] = MAKE[name](options)
        except (SimulationFailed, subprocess.CalledProcessError) as error:
            raise SystemExit(f"benchmarks.schedulers.reproduce: {name}: {error}") from None
        if not options.json:
            print(f"\n{name}\n\n{SHOW[name](rows[name])}", flush=True)
        if options.output is not None:  # after each: some take minutes
            fill(options.output / f"{NAME}.md", SHOW[name](rows[name]), name)
    if options.json:
        print(json.dumps({"name": NAME, "tables": rows}, indent=1))


def simulated(trace: Trace, policy: str) -> ResultRow:
    """Return the figures of a policy on a trace. Raises SimulationFailed."""
    cluster = Cluster.uniform(trace.nodes, 8, cpus=24, memory_gb=500)
    name, settings = resolved(policy)
    outcome = run(SimulationTask(name, Source(trace.path), SimulationConfig(cluster, settings=settings)))
    if sys.stderr.isatty():
        print(f"{trace.name}: {policy}, {outcome.wall_s:.1f} s", file=sys.stderr)
    return {**asdict(outcome.metrics), "trace": trace.name, "policy": policy, "took_s": outcome.cpu_s}


def replicas(options: argparse.Namespace) -> list[ResultRow]:
    """Run the public code's rules: policies with public figures, and all of them on the first trace."""
    rows = []
    for trace in traces(options.traces):
        for policy in with_ablations(known_replicas("muri-replica")):
            theirs = MURI.get((trace.name, policy))
            wanted = theirs is not None or trace.name in FIRST
            if not wanted or (takes_minutes(trace, policy) and not options.slow):
                continue
            row = simulated(trace, policy)
            if theirs is not None:
                row |= {f"public_{key}": value for key, value in asdict(theirs).items()}
                row["off"] = abs(row["avg_jct_s"] / theirs.avg_jct_s - 1)
                row["times_faster"] = None if theirs.took_s is None else theirs.took_s / row["took_s"]
            rows.append(row)
    return rows


def paper(options: argparse.Namespace) -> list[ResultRow]:
    """Run all policies by the papers' rules; Muri's ablations on the first trace only."""
    first, *others = [trace for trace in traces(options.traces) if trace.name in PAPER] or traces(
        options.traces
    )[:1]
    plain = [name for name in known() if not family(name) and name not in BY_DEADLINE]
    names = with_ablations(plain)
    main_names = [name for name in names if not name.startswith("muri-s-")]
    pairs = [(first, name) for name in names] + [(trace, name) for trace in others for name in main_names]
    return [simulated(trace, name) for trace, name in pairs if options.slow or not takes_minutes(trace, name)]


def synergy(options: argparse.Namespace) -> list[ResultRow]:
    """Compare TUNE with OPT, in one round and over traces, and the replica with the public simulator."""
    folder = options.traces
    if folder is None:
        return [*_rounds("made-up", MIXES[:1]), *_traces("made-up", jobs=200, loads=LOADS[:1])]
    matrix = ("--matrix", folder / "synergy" / "sensitivity_matrix.csv")
    rows = [*_rounds("made-up", MIXES), *_rounds("measured", MIXES, *matrix)]
    rows += _traces("made-up", jobs=1500, loads=LOADS)
    rows += _traces("measured", *matrix, jobs=1500, loads=LOADS)
    for servers in (16, 8):
        replay = ("--replay", folder / "common" / "c1000" / "synergy.csv", "--servers", servers)
        made = _module("synergy", "end-to-end", *matrix, *replay)
        rows += _labelled(made, table="end-to-end", matrices="measured", trace=f"c1000 on {servers * 8} GPUs")
    for workload, policies in by_workload(SYNERGY).items():
        replay_of = workload.arguments(folder)
        made = _module("synergy", "published", *matrix, *replay_of, "--policies", policies)
        rows += [_published(workload.name, row) for row in made]
    return rows


def _rounds(matrices: str, mixes: Sequence[str], *options: object) -> list[ResultRow]:
    rows: list[ResultRow] = []
    for mix, sizes in product(mixes, SIZES):
        made = _module("synergy", "allocate", *options, "--mix", mix, "--sizes", sizes)
        rows += _labelled(made, table="allocate", matrices=matrices, mix=mix, sizes=sizes)
    return rows


def _traces(matrices: str, *options: object, jobs: int, loads: Sequence[int]) -> list[ResultRow]:
    rows: list[ResultRow] = []
    for load in loads:
        made = _module("synergy", "end-to-end", *options, "--jobs", jobs, "--load", load)
        trace = f"{jobs:,} jobs, {load} an hour" if load else f"{jobs:,} jobs at once"
        rows += _labelled(made, table="end-to-end", matrices=matrices, trace=trace)
    return rows


def _labelled(rows: Iterable[ResultRow], **labels: str) -> list[ResultRow]:
    return [{**labels, **row} for row in rows]


def by_workload(references: Iterable[tuple[str, str]]) -> dict[Workload, str]:
    """Return the policies, by comma, that have references on each workload."""
    return {w: ",".join(p for name, p in references if name == w.name) for w in WORKLOADS}


def _published(workload: str, row: ResultRow) -> ResultRow:
    theirs = SYNERGY[workload, row["policy"]]
    return {
        "table": "published",
        "workload": workload,
        **row,
        **{f"public_{key}": value for key, value in asdict(theirs).items()},
        "off": row["average_s"] / theirs.avg_jct_s - 1,
        "times_faster": None if theirs.took_s is None else theirs.took_s / row["wall_s"],
    }


def lucid(options: argparse.Namespace) -> list[ResultRow]:
    """Run Lucid, by both rule sets if the public trace is there, and train its models."""
    if options.traces is None:
        return [{"table": "paper", **row} for row in _module("lucid", "schedule")]
    files = options.traces / "lucid"
    measured = ("--profiles", files / "single_data.csv", "--pairs", files / "colocate_info.csv")
    log = ("--folder", options.traces / "common" / "c1000" / "lucid")
    rows = [{"table": "paper", **row} for row in _module("lucid", "schedule", *log, *measured)]
    for row in _module("lucid", "schedule", "--replica", *log, *measured):
        theirs = LUCID[row["policy"]]
        rows.append(
            {
                "table": "replicas",
                **row,
                "public_average_s": theirs.avg_jct_s,
                "public_p99_s": theirs.p99_jct_s,
                "public_took_s": theirs.took_s,
            }
        )
    return rows


MAKE: Mapping[str, Callable[[argparse.Namespace], list[ResultRow]]] = {
    "replicas": replicas,
    "paper": paper,
    "synergy": synergy,
    "lucid": lucid,
}


def _module(name: str, *arguments: object) -> Sequence[ResultRow]:
    """Run another benchmark with ``--json`` and return its rows."""
    command = [sys.executable, "-m", f"benchmarks.schedulers.{name}", *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[ResultRow] = json.loads(done.stdout)
    return rows


if __name__ == "__main__":
    main()
