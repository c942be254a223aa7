"""``ina advise``: the best policies for given jobs and cluster, and which more resources would help most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Annotated

from controller.policies.settings import SIMPLEST, PolicyChoice, default_for
from controller.simulator.network.advice import (
    ChoiceSummary,
    Figures,
    choices,
    larger,
    recommend,
    summarize,
    task,
)
from controller.simulator.network.run import NetworkTask, run_network
from controller.simulator.network.speed import NetworkSettings
from controller.simulator.pool import run_each
from controller.vocabulary import Job, Topology
from ina.cli import schedule_inputs as inputs
from ina.cli.allocation import common
from ina.cli.command import Declared, Listing, Reply, Result, count, plural
from ina.cli.output import Bars


def advise(
    *,
    files: common.AllocationFiles,
    variations: Annotated[
        int,
        Declared(
            min=1,
            max=1000,
            help="Compare on this many variations of the jobs. The first one is the file itself. The others "
            "multiply the lengths of jobs by random factors from 0.8 to 1.25, and the gaps between "
            "arrivals by factors from 0.5 to 1.5.",
        ),
    ] = 5,
    leaders: Annotated[
        int,
        Declared(min=1, help="Simulate the variations with the N combinations that are best on the file."),
    ] = 12,
    best: Annotated[int, Declared(min=1, help="Print the N best combinations.")] = 8,
    processes: inputs.Processes = 0,
) -> Reply:
    """Recommend scheduler, placement, memory and routing for given jobs and cluster.

    Simulates all combinations of policies that can make a difference for these jobs, and ranks them by missed
    deadlines, then by mean completion time. Compares them with the simplest combination: fifo-backfill +
    locality + shared + shortest-path. Recommends the default of 'ina controller' unless another combination
    is clearly better. Then says what would help most: more servers, faster links, or more slots.

    Examples:
        ina advise --jobs examples/cluster/jobs.toml --cluster examples/cluster/racks.toml

        ina advise --variations 20 --best 5 --jobs jobs.toml --cluster leaf-spine:2x4x8

        ina advise --json --jobs trace.csv --cluster racks.toml
    """
    found = files.load("advise")
    advice = _Advice(found.jobs, found.topology, processes)
    summaries = advice.compare(choices(found.jobs, found.topology), variations, leaders)
    usual = default_for(len(found.topology.servers))
    chosen = recommend(summaries, usual)
    limits = advice.limits(chosen.choice, variations)
    size = f"{plural(len(found.jobs), 'job')} on {plural(found.topology.gpus, 'GPU')}"
    ranked = sorted(summaries, key=lambda each: each.rank)
    shown = [*ranked[:best], *(each for each in ranked[best:] if each.choice == SIMPLEST)]
    limit_rows = [_limit_cells(each, limits) for each in limits]
    result = _result(found, ranked, chosen, limits, variations)
    return Reply(
        replace(result, unused_keys=files.unused_keys("advise")),
        [
            Listing(f"{size}, mean of {plural(variations, 'variation')}", _COLUMNS, [*map(_cells, shown)]),
            Listing(f"What limits {chosen.choice}", ("with", "missed", "avg JCT s", "change"), limit_rows),
            _verdict(chosen, usual, limits),
        ],
    )


class _Advice:
    """Simulates one file of jobs on one cluster. It keeps the results, so that no simulation runs twice."""

    def __init__(self, jobs: Sequence[Job], topology: Topology, processes: int) -> None:
        self._jobs = jobs
        self._topology = topology
        self._processes = processes
        self._found: dict[tuple[PolicyChoice, int], Figures] = {}

    def compare(
        self, candidates: Sequence[PolicyChoice], variations: int, leaders: int
    ) -> list[ChoiceSummary]:
        """Simulate all candidates on the file, and the best candidates on variations of the file, too.

        Returns one summary for each of the `leaders` best candidates on the file, for the simplest
        combination of policies, and for the default combination. A summary is over `variations` simulations,
        of which the first one is of the file itself.
        """
        self._simulate([(each, 0) for each in candidates], "combinations on the file")
        first = sorted(
            candidates, key=lambda each: (self._found[each, 0].missed, self._found[each, 0].avg_jct_s)
        )
        always = (SIMPLEST, default_for(len(self._topology.servers)))
        kept = [*first[:leaders], *(each for each in first[leaders:] if each in always)]
        rest = [(each, number) for each in kept for number in range(1, variations)]
        self._simulate(rest, "simulations of variations")
        return [self._standing(each, variations) for each in kept]

    def _standing(self, choice: PolicyChoice, variations: int) -> ChoiceSummary:
        own, simplest = (
            [self._found[each, number] for number in range(variations)] for each in (choice, SIMPLEST)
        )
        return summarize(choice, own, simplest)

    def _simulate(self, wanted: Sequence[tuple[PolicyChoice, int]], what: str) -> None:
        tasks = [task(choice, self._jobs, self._topology, number, _AROUND) for choice, number in wanted]
        self._found |= zip(wanted, self._run(tasks, what), strict=True)

    def limits(self, choice: PolicyChoice, variations: int) -> dict[str, tuple[float, float]]:
        """Return, by cluster, the number of missed deadlines and the mean completion time, in seconds.

        Both are means over `variations` simulations with `choice`. The keys are "nothing more" for this
        cluster, and the added resource, such as "one more server", for each larger cluster. `compare` must
        have summarized `choice`.
        """
        topologies = larger(self._topology)
        keys = [(name, number) for name in topologies for number in range(variations)]
        tasks = [task(choice, self._jobs, topologies[name], number, _AROUND) for name, number in keys]
        found = dict(zip(keys, self._run(tasks, "simulations with more of each resource"), strict=True))
        of = {"nothing more": [self._found[choice, number] for number in range(variations)]}
        of |= {name: [found[name, number] for number in range(variations)] for name in topologies}
        return {
            name: (fmean(each.missed for each in figures), fmean(each.avg_jct_s for each in figures))
            for name, figures in of.items()
        }

    def _run(self, tasks: Sequence[NetworkTask], what: str) -> list[Figures]:
        with Bars([""] * len(tasks), together=f"{len(tasks)} {what}") as bars:
            outcomes = run_each(run_network, tasks, processes=self._processes, report=bars.reports)
        return [Figures.of(each) for each in outcomes]


_AROUND = NetworkSettings()
_COLUMNS = (
    *("scheduler", "placement", "memory", "routing", "missed", "avg JCT s", "beside the simplest"),
    *("slowed jobs", "slowed most"),
)


def _cells(each: ChoiceSummary) -> tuple[str, ...]:
    low, high = each.change_range
    same = each.choice == SIMPLEST
    return (
        *asdict(each.choice).values(),
        f"{each.missed:.1f} of {each.deadlines}" if each.deadlines else "-",
        count(each.avg_jct_s),
        "the simplest" if same else f"{each.change:+.1%} ({low:+.1%} to {high:+.1%})",
        "-" if same else f"{each.slowed:.0%}",
        f"{each.worst}: {each.worst_factor:.2f} times" if each.worst else "-",
    )


def _limit_cells(name: str, limits: dict[str, tuple[float, float]]) -> tuple[str, ...]:
    (missed, jct_s), (_, base_s) = limits[name], limits["nothing more"]
    change = "-" if name == "nothing more" else f"{jct_s / base_s - 1:+.1%}" if base_s else "-"
    return name, f"{missed:.1f}", count(jct_s), change


def _verdict(best: ChoiceSummary, default: PolicyChoice, limits: dict[str, tuple[float, float]]) -> str:
    base = limits["nothing more"]
    more = {name: figures for name, figures in limits.items() if name != "nothing more"}
    helps = min(more, key=lambda name: more[name])
    if best.choice == default:
        advice = f"Use {best.choice}, the controller's default: no other is clearly better for these jobs."
    else:
        advice = f"Use {best.choice}: mean completion time {best.change:+.1%} compared with the simplest"
        advice += f", {best.missed:.1f} of {best.deadlines} deadlines missed." if best.deadlines else "."
    fewer, sooner = base[0] - more[helps][0], 1 - more[helps][1] / base[1] if base[1] else 0.0
    if fewer <= 0 and sooner < 0.01:
        return f"{advice}\nNo resource is short: more servers, links or slots would gain less than 1 %."
    return f"{advice}\nWould help most: {helps} ({sooner:.1%} less time, {fewer:.1f} fewer missed deadlines)."


def _result(
    found: common.Inputs,
    ranked: Sequence[ChoiceSummary],
    best: ChoiceSummary,
    limits: dict[str, tuple[float, float]],
    variations: int,
) -> Result:
    setup = {
        "jobs": len(found.jobs),
        "gpus": found.topology.gpus,
        "cluster": found.topology.name,
        "variations": variations,
        "simplest": asdict(SIMPLEST),
    }
    metrics = {
        "recommended": asdict(best.choice),
        "policies": [asdict(each) for each in ranked],
        "with_more": {
            name: {"missed": missed, "avg_jct_s": jct_s} for name, (missed, jct_s) in limits.items()
        },
    }
    return Result("advise", setup, metrics)
