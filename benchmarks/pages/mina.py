"""MINA (INFOCOM'25), which divides switches among jobs sum by sum, beside our policies.

Its replica beside what it published, our policies on its jobs, and its policies on ours.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.pages.mina_runs import (
    ALONE_HOSTS,
    ALONE_TURNS,
    BASELINE,
    DOUBLE,
    FAMILIES,
    FIXED,
    HERE,
    INVERTED,
    JOBS,
    LATER,
    MINA,
    MINA_HERE,
    MOST_HOSTS,
    NEAR,
    OURS,
    PARTS,
    PREEMPTIVE,
    PUBLISHED,
    RATES_GBPS,
    SEEDS_HERE,
    SHARED,
    SIMPLEST,
    SMALL,
    STACKS,
    THERE,
    WITHOUT_HOSTS,
    WITHOUT_TREES,
    WITHOUT_TURNS,
    scenarios,
)
from benchmarks.replicas.mina.models import MODELS, Kinds, Rates
from bmv2_topos.harness import Experiment, ResultRow, column, columns, markdown, number, selected

Rows = Sequence[ResultRow]

QUESTION: Final = """
MINA (Dong et al., INFOCOM 2025, extended in ToN 2025) lets jobs take turns at switches sum by sum, and
chooses their hosts and trees for that. It publishes an efficiency of 0.91 on average, 2.67 times that of
its baseline. What do its parts bring beside simple policies, on its workloads and on ours?
"""

ABOUT: Final = f"""
*As published*: [the simulator](https://github.com/ClubieDong/MinaSimulator) has links that are never full; a
sum in the network is twice as fast as by the hosts, and needs all switches of its job's tree to itself. Its
1,000 jobs of seven models wait in one queue for the {1024:,} hosts of a fat tree. Hosts: in as few
fragments as can be. Trees: as many as can be without common switches; the others share, if a simulation
says that it pays. Turns: a sum waits for none, but goes by the hosts if another one starts before its end
and saves more time per time at the switches. The baseline is first fit, with trees only where no switch
is used yet. *Efficiency* is 0 for the time that jobs take with all sums by the hosts and 1 for that with all
sums in the network, weighted by hosts. The replica (`benchmarks/replicas/mina`) draws the same jobs, digit by
digit; of each model it has ten figures instead of the measured list of buckets.

*On its workload*: the mix of all sizes, {JOBS} jobs of up to {MOST_HOSTS} hosts on {SMALL.hosts}, ten seeds,
of which {len(LATER)} were drawn after the policies were fixed; at the published 100 Gb/s and at 25.
Static: trees without common switches. Shared: the tree that meets fewest others; the first that finds its
switches free sums there. Preemptive: a sum is decided on {PARTS} times, by MINA's rule. *Slower*: jobs on
several hosts that take over 1 % longer than with the baseline, and the longest.

*On ours*: MINA's placement and trees behind this project's interfaces, as flows with `fifo-backfill` and
shared slots, in {len(FAMILIES)} families of [which-policy](which-policy.md) with {len(SEEDS_HERE)} of its
seeds. MINA's jobs have whole hosts; here jobs that fit go to one server, which was changed after these seeds
were seen, in MINA's favour (all small: +25 % before). *Slower*: jobs that take over 5 % longer than with
`{SIMPLEST}`.
"""

LIMITS: Final = """
MINA's turns are not among the policies of the controller: it decides when jobs come and go, not on each
sum, and jobs share slots packet by packet. Its deadlines: there are none, so ours have nothing to do
there. The papers themselves were not at hand: the model is that of the public simulator, whose merging of
groups depends on the order of a hash table; where trees are built, the replica deviates by as much as the
table says, most without MINA's turns. It searches independent sets in a simpler way. Links are never full in
MINA's model, so that NetPack has nothing to go by there.
"""


def tables(rows: Rows) -> str:
    """Return the three tables."""
    parts = (
        ("As published", _published(selected(rows, part=PUBLISHED))),
        ("On its workload", _there(selected(rows, part=THERE))),
        ("On ours", _here(selected(rows, part=HERE))),
    )
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts)


def _published(rows: Rows) -> str:
    return markdown(
        ["jobs", "of MINA", "published", "replica", "deviation", "time saved by the network"],
        [
            [
                str(row["mix"]),
                str(row["uses"]).replace(" ", ", ") or "nothing",
                f"{number(row, 'published'):.4f}",
                f"{number(row, 'efficiency'):.4f}",
                f"{number(row, 'efficiency') - number(row, 'published'):+.4f}",
                f"{number(row, 'gain'):.2%}",
            ]
            for row in rows
        ],
    )


def _there(rows: Rows) -> str:
    rates = list(dict.fromkeys(number(row, "rate_gbps") for row in rows))
    by_rate = {rate: selected(rows, rate_gbps=int(rate)) for rate in rates}
    heads = [
        head
        for rate in rates
        for head in (f"efficiency at {rate:.0f} Gb/s", "least", "time saved", "slower", "worst")
    ]
    return markdown(
        ["policies", *heads],
        [[name, *(cell for of in by_rate.values() for cell in _cells_there(of, name))] for name in STACKS],
    )


def _cells_there(rows: Rows, name: str) -> list[str]:
    values = column(rows, f"{name}.efficiency")
    return [
        f"{statistics.fmean(values):.3f}",
        f"{min(values):.3f}",
        f"{_mean(rows, f'{name}.gain'):.2%}",
        f"{_mean(rows, f'{name}.slower'):.1%}",
        f"{max(column(rows, f'{name}.worst')):+.0%}",
    ]


def _mean(rows: Rows, name: str) -> float:
    return statistics.fmean(column(rows, name))


def _families(rows: Rows) -> list[str]:
    return list(dict.fromkeys(str(row["family"]) for row in rows))


def against_simplest(rows: Rows, name: str) -> float:
    """Return how much longer jobs take, on average, than with the simplest policies; negative: less long."""
    return _mean(rows, f"{name}.mean_s") / _mean(rows, f"{SIMPLEST}.mean_s") - 1


def _here(rows: Rows) -> str:
    families = _families(rows)
    return markdown(
        ["policies", *families, "slower"],
        [
            [
                name,
                *(f"{against_simplest(selected(rows, family=family), name):+.1%}" for family in families),
                f"{_mean(rows, f'{name}.slower'):.0%}",
            ]
            for name in OURS
        ],
    )


def gaining_models(rate_gbps: float) -> list[str]:
    """Return the models whose steps take less long with sums in the network, at this rate of links."""
    kinds = Kinds([*MODELS.values()], Rates(by_hosts_bytes=rate_gbps * 1e9 / 8))
    return [
        name
        for number_, name in enumerate(MODELS)
        if kinds.step_s(number_, 2, in_network=True) < kinds.step_s(number_, 2, in_network=False)
    ]


def findings(rows: Rows) -> str:
    """Return the text on the tables: the replica, what can be gained, both rates, seeds, our clusters."""
    published, there, here = (selected(rows, part=part) for part in (PUBLISHED, THERE, HERE))
    without = [row for row in published if "trees" not in str(row["uses"])]
    exact = max(_deviation(row) for row in without)
    built = max((_deviation(row) for row in published if row not in without), default=0.0)
    most = max(number(row, "gain") for row in published)
    gaining = gaining_models(RATES_GBPS[0])
    lines = [
        f"- The replica deviates from the published efficiencies by at most {exact:.4f} where no trees are"
        f" built, and by {built:.4f} where they are. With the measured buckets instead of ten figures a"
        " model, read from a clone, the first are equal in all digits, as are all sums of times.",
        f"- At the published rate only {len(gaining)} of {len(MODELS)} models gains anything from sums in the"
        f" network ({', '.join(gaining)}, 4.4 % of its step): for the others communication is hidden behind"
        f" computing. All of an efficiency of 1 is worth {most:.2%} of the jobs' time at most. At 25 Gb/s"
        f" {len(gaining_models(25))} do.",
    ]
    for rate in dict.fromkeys(number(row, "rate_gbps") for row in there):
        of = selected(there, rate_gbps=int(rate))
        lines.append(_about_rate(of, rate))
    lines.append(_about_seeds(there))
    gains = {family: against_simplest(selected(here, family=family), MINA_HERE) for family in _families(here)}
    lines.append(
        f"- On our clusters MINA's servers and trees take {min(gains.values()):+.1%}"
        f" ({min(gains, key=gains.__getitem__)}) to {max(gains.values()):+.1%}"
        f" ({max(gains, key=gains.__getitem__)}) of `{SIMPLEST}`'s time; together"
        f" {against_simplest(here, MINA_HERE):+.1%}, filling the fastest servers first"
        f" {against_simplest(here, 'locality, fast links'):+.1%}, NetPack"
        f" {against_simplest(here, 'NetPack'):+.1%}. None of it became a policy of the product."
    )
    return "\n".join(lines)


def _deviation(row: ResultRow) -> float:
    return abs(number(row, "efficiency") - number(row, "published"))


def _about_rate(rows: Rows, rate_gbps: float) -> str:
    def stated(name: str) -> str:
        return f"{_mean(rows, f'{name}.efficiency'):.3f}"

    return (
        f"- At {rate_gbps:.0f} Gb/s MINA has {stated(MINA)}, its baseline {stated(BASELINE)}; with its hosts"
        f" alone {stated(ALONE_HOSTS)}, with its turns alone {stated(ALONE_TURNS)}, with our locality and"
        f" static trees"
        f" {stated(NEAR)}. Locality and sharing, first come, has"
        f" {stated(SHARED)}; preemptive, in parts, {stated(PREEMPTIVE)}; twice the memory without any turns"
        f" {stated(DOUBLE)}. Without its hosts MINA has {stated(WITHOUT_HOSTS)}, without its"
        f" trees {stated(WITHOUT_TREES)}, without its turns"
        f" {stated(WITHOUT_TURNS)}, with these inverted {stated(INVERTED)}. Beside the baseline"
        f" {_mean(rows, f'{MINA}.slower'):.1%} of jobs are slower, the worst"
        f" {max(column(rows, f'{MINA}.worst')):+.0%}; with locality and sharing"
        f" {_mean(rows, f'{SHARED}.slower'):.1%} and {max(column(rows, f'{SHARED}.worst')):+.0%}."
    )


def _about_seeds(rows: Rows) -> str:
    def of(seeds: Sequence[int], name: str) -> str:
        found = [number(row, f"{name}.efficiency") for row in rows if row["seed"] in seeds]
        return f"{statistics.fmean(found):.3f}" if found else "(not run)"

    return (
        f"- Both rates together, seeds of before and after: MINA {of(FIXED, MINA)} and {of(LATER, MINA)},"
        f" preemptive {of(FIXED, PREEMPTIVE)} and {of(LATER, PREEMPTIVE)}, shared {of(FIXED, SHARED)} and"
        f" {of(LATER, SHARED)}."
    )


EXPERIMENT = Experiment(
    name="mina",
    title="MINA beside our policies",
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=columns,
    tables=tables,
    findings=findings,
    limits=LIMITS,
)
