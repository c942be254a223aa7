"""MINA (INFOCOM'25), which divides switches among jobs sum by sum, beside our policies.

Its replica beside what it published, our policies on its jobs, and its policies on ours.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.pages.mina_runs import (
    HERE,
    OURS,
    PUBLISHED,
    SIMPLEST,
    STACKS,
    THERE,
    scenarios,
)
from benchmarks.replicas.mina.steps import MODELS, Kinds, Rates
from bmv2_topos.harness import Experiment, ResultRow, column, columns, markdown, number, selected

Rows = Sequence[ResultRow]


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


EXPERIMENT = Experiment(
    name="mina",
    title="MINA beside our policies",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)
