"""The tables of docs/results/improved.md: our grouping beside Muri's, and beside no grouping.

`python -m benchmarks.schedulers.improved --traces DIR` runs on what there is below DIR of Muri's traces and
of c1000 (`benchmarks.schedulers.trace_files`), without `--traces` on a small trace that is shipped: durations
known, traces of a thousand jobs. `--slow` adds longer traces, durations unknown, and variants of `weave-s`:
hours. `--output docs/results` writes improved.json, and the tables between the marks of improved.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.fill import check, fill
from benchmarks.replicas import full_name
from benchmarks.schedulers.trace_files import LONG, Trace, traces
from bmv2_topos.harness import markdown
from controller.policies.family import SimulationConfig
from controller.policies.scheduling import papers
from controller.policies.scheduling.speed import Interleaved
from controller.policies.scheduling.weave import Weave
from controller.simulator import measure
from controller.simulator.policy_run import PolicyRun
from controller.simulator.pool import run_all
from controller.simulator.runs import RunFailed, Source, Task
from controller.simulator.traces import read
from controller.vocabulary import Cluster
from ina.cli.output import Bar

ResultRow = dict[str, Any]

NAME = "improved"
KNOWN = "durations known"
BESIDE: Mapping[tuple[str, ...], str] = {
    ("srsf", "muri-s", "weave-s"): "Rules of the papers, durations known:",
    ("tiresias", "muri-l", "weave-l"): "Rules of the papers, durations unknown:",
    (
        "muri-replica:srsf",
        "muri-replica:muri-s",
        "muri-replica:weave-s",
    ): "Rules of the public code, durations known:",
    (
        "muri-replica:tiresias",
        "muri-replica:muri-l",
        "muri-replica:weave-l",
    ): "Rules of the public code, durations unknown:",
}
"""Captions of the tables by the policies compared: none that groups, Muri, and ours."""

FIGURES = {
    "average": "avg_jct_s",
    "median": "median_jct_s",
    "p99": "p99_jct_s",
    "slowdown": "avg_slowdown",
    "its p99": "p99_slowdown",
}

VARIED = ("trace3", "trace3_pr", "sample")


def variants() -> dict[str, PolicyRun]:
    """Return `weave-s` with one thing changed at a time, and what it is to be better than."""
    speed, told = Interleaved(), Interleaved(contention=(1.0,) * 4)
    changed = {
        "`weave-s`": Weave(told),
        "no exchanges after the greedy start": Weave(told, exchange=False),
        "groups of greatest worth, nothing foreseen": Weave(told, trust=0.0),
        "q = 0.5: the tail is looked after": Weave(told, power=0.5),
        "s = 0: slowdowns are not looked after": Weave(told, short=0.0),
        "looks at twice the cluster instead of eight times": Weave(told, width=2),
        "pairs only": Weave(told, members=2),
        "knows the contention of groups": Weave(speed),
    }
    return {name: PolicyRun(policy, speed) for name, policy in changed.items()} | {
        "`muri-s`": PolicyRun.of(papers.setup("muri-s"))
    }


def main() -> None:
    """Run, print the tables, and write page and rows on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, metavar="DIR", help="folder with the public traces")
    parser.add_argument("--slow", action="store_true", help="also run the slow parts (minutes)")
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"write {NAME}.json, and into {NAME}.md")
    given = parser.parse_args()
    if given.output is not None:
        try:
            check(given.output / f"{NAME}.md")
        except ValueError as error:
            parser.error(f"--output {given.output}: {error}")
    try:
        files = traces(given.traces)
        tables = {"compared": compared(files, slow=given.slow), "variants": varied(files, slow=given.slow)}
    except RunFailed as error:
        raise SystemExit(f"benchmarks.schedulers.improved: {error}") from None
    shown = text(tables)
    print(shown)
    if given.output is not None:
        given.output.mkdir(parents=True, exist_ok=True)
        fill(given.output / f"{NAME}.md", shown)
        rows = json.dumps({"name": NAME, "tables": tables}, indent=1)
        (given.output / f"{NAME}.json").write_text(rows + "\n", encoding="utf-8")


def compared(files: Sequence[Trace], *, slow: bool) -> list[ResultRow]:
    """Run the policies on the traces, one simulation per core."""
    wanted = [
        (trace, policy)
        for policies in BESIDE
        for trace in files
        for policy in policies
        if slow or (KNOWN in BESIDE[policies] and not trace.name.startswith(LONG))
    ]
    tasks = [
        Task(full_name(policy), Source(trace.path), SimulationConfig(Cluster.uniform(trace.nodes, 8)))
        for trace, policy in wanted
    ]
    names = [trace.name for trace, _ in wanted]
    done = [0.0] * len(tasks)
    with Bar() as bar:

        def report(position: int, share: float) -> None:
            done[position] = share
            bar.show(sum(done) / len(done), f"{tasks[position].policy} on {names[position]}")

        outcomes = run_all(tasks, report=report)
    return [
        {**asdict(outcome.metrics), "trace": trace.name, "policy": policy, "took_s": outcome.cpu_s}
        for (trace, policy), outcome in zip(wanted, outcomes, strict=True)
    ]


def varied(files: Sequence[Trace], *, slow: bool) -> list[ResultRow]:
    """Run the variants on the traces that they are measured on; the shipped one is quick."""
    rows = []
    for trace in [trace for trace in files if trace.name in VARIED and (slow or trace.name == "sample")]:
        cluster = Cluster.uniform(trace.nodes, 8)
        specs = read(trace.path, cluster)
        for name, made in variants().items():
            metrics = measure(made.run(specs, cluster))
            rows.append({"trace": trace.name, "variant": name, **asdict(metrics)})
    return rows


def text(tables: Mapping[str, Sequence[ResultRow]]) -> str:
    """Return all tables."""
    found = {(row["trace"], row["policy"]): row for row in tables["compared"]}
    parts = []
    for policies, caption in BESIDE.items():
        names = list(dict.fromkeys(name for name, policy in found if policy == policies[-1]))
        if names:
            parts += [caption, _figures(found, names, policies), _changes(found, names, policies)]
    if tables["variants"]:
        parts += ["`weave-s` with one thing changed, rules of the papers:", _variants(tables["variants"])]
    return "\n\n".join(parts)


def _figures(
    found: Mapping[tuple[str, str], ResultRow], names: Sequence[str], policies: Sequence[str]
) -> str:
    cells = []
    for name in names:
        for policy in policies:
            row = found[name, policy]
            times = [f"{row[key]:,.0f}" for key in list(FIGURES.values())[:3]]
            slowdowns = [f"{row[key]:,.2f}" for key in list(FIGURES.values())[3:]]
            cells.append([name, f"{row['jobs']:,}", f"`{policy}`", *times, *slowdowns])
    return markdown(["trace", "jobs", "policy", *FIGURES], cells)


def _changes(
    found: Mapping[tuple[str, str], ResultRow], names: Sequence[str], policies: Sequence[str]
) -> str:
    """Return by how much the last of `policies` changes each figure of the others, trace by trace."""
    *others, ours = policies
    cells = []
    for name in names:
        for other in others:
            changes = [found[name, ours][key] / found[name, other][key] - 1 for key in FIGURES.values()]
            cells.append([name, f"`{other}`", *(f"{100 * change:+.1f} %" for change in changes)])
    return markdown([f"`{ours}` on", "beside", *FIGURES], cells)


def _variants(rows: Sequence[ResultRow]) -> str:
    names = list(dict.fromkeys(row["trace"] for row in rows))
    found = {(row["variant"], row["trace"]): row for row in rows}
    columns = ["variant", *(f"{name}, {figure}" for name in names for figure in ("average", "p99"))]
    cells = [
        [
            variant,
            *(f"{found[variant, name][key]:,.0f}" for name in names for key in ("avg_jct_s", "p99_jct_s")),
        ]
        for variant in dict.fromkeys(row["variant"] for row in rows)
    ]
    return markdown(columns, cells)


if __name__ == "__main__":
    main()
