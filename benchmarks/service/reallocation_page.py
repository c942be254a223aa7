"""Tables and plot of `benchmarks.service.reallocation`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from bmv2_topos.harness.rows import markdown
from controller.figures import new_figure, save

if TYPE_CHECKING:
    from benchmarks.service.reallocation import Row

NAME = "service-reallocation"
BASE = "shared"
"""The policy that completion times are relative to."""


def tables(rows: Sequence[Row]) -> str:
    """Return deadlines missed, completion times and the check of the machine as Markdown."""
    parts: list[str] = []
    for deadlines in dict.fromkeys(row.deadlines for row in rows):
        own = [row for row in rows if row.deadlines == deadlines]
        parts += [
            f"**{_summary(own, deadlines)}**",
            f"### Deadlines missed, and completion times: {deadlines} deadlines",
            _compared(own),
            f"### Missed by seed: {deadlines} deadlines",
            markdown(["seed", *_policies(own)], _by_seed(own)),
            f"### An iteration, ms, and what the fallback server got: {deadlines} deadlines",
            markdown(
                [
                    *("policy", "by links", "measured", "computing", "waiting for sums", "rest"),
                    *("by the fallback server", "Mb/s there", "load"),
                ],
                [
                    _iteration(policy, [row for row in own if row.policy == policy])
                    for policy in _policies(own)
                ],
            ),
        ]
    return "\n\n".join(parts)


def _compared(rows: Sequence[Row]) -> str:
    seeds = _seeds(rows)
    base = [row for row in rows if row.policy == BASE]
    lines = []
    for policy in _policies(rows):
        own = [row for row in rows if row.policy == policy]
        missed = [_missed(own, seed) for seed in seeds]
        lines.append(
            [
                policy,
                f"{sum(missed)} of {sum(row.deadline_s is not None for row in own)}",
                f"{min(missed)}..{max(missed)}",
                *(
                    _against([_mean(own, seed, which) / _mean(base, seed, which) for seed in seeds])
                    for which in (_urgent, _other)
                ),
                f"{fmean(row.divisions for row in own):.1f}",
            ]
        )
    heads = ["policy", "missed", "of a seed", "time with deadline", "time without", "slots changed"]
    return markdown(heads, lines)


def _by_seed(rows: Sequence[Row]) -> list[list[str]]:
    policies = _policies(rows)
    return [
        [
            str(seed),
            *(str(_missed([row for row in rows if row.policy == policy], seed)) for policy in policies),
        ]
        for seed in _seeds(rows)
    ]


def _missed(rows: Sequence[Row], seed: int) -> int:
    return sum(row.missed for row in rows if row.seed == seed)


def _summary(rows: Sequence[Row], deadlines: str) -> str:
    missed = {
        policy: [row for row in rows if row.policy == policy and row.deadline_s is not None]
        for policy in _policies(rows)
    }
    due = max(map(len, missed.values()))
    parts = [f"{policy} {sum(row.missed for row in own)}" for policy, own in missed.items()]
    return f"Of {due} {deadlines} deadlines missed: {', '.join(parts)}."


def _iteration(policy: str, rows: Sequence[Row]) -> list[str]:
    ideal, whole, compute, network = (
        1e3 * fmean(values)
        for values in zip(
            *((row.ideal_s, row.iteration_s, row.compute_s, row.network_s) for row in rows), strict=True
        )
    )
    loads = [row.load for row in rows]
    return [
        policy,
        *(f"{value:.0f}" for value in (ideal, whole, compute, network, whole - compute - network)),
        *_detour(rows),
        f"{min(loads):.0f}..{max(loads):.0f}",
    ]


def _detour(rows: Sequence[Row]) -> tuple[str, str]:
    """Return which part of what workers sent came to the fallback server, and at which rate."""
    shares = [row.detour for row in rows if row.detour is not None]
    rates = [row.detour_bps for row in rows if row.detour_bps is not None]
    if not shares or not rates:
        return "", ""
    return f"{100 * fmean(shares):.0f} %", f"{fmean(rates) / 1e6:.0f}"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw completion times against `BASE`, a mark for each seed, with the first rows' deadlines.

    Raises PlotsMissing.
    """
    rows = [row for row in rows if row.deadlines == rows[0].deadlines]
    policies, seeds = _policies(rows), _seeds(rows)
    figure, panels = new_figure(2, height=2.0)
    for panel, which, title in zip(
        panels, (_urgent, _other), ("with a deadline", "best effort"), strict=True
    ):
        for at, policy in enumerate(policies):
            values = [
                _mean([row for row in rows if row.policy == policy], seed, which)
                / _mean([row for row in rows if row.policy == BASE], seed, which)
                for seed in seeds
            ]
            panel.plot([at] * len(values), values, "o", color="C0", alpha=0.6)
            panel.plot([at], [fmean(values)], "_", color="black", markersize=16)
        panel.axhline(1.0, color="0.6", linewidth=0.8)
        panel.set_xticks(range(len(policies)), policies, rotation=20, fontsize="x-small")
        panel.set_ylabel(f"time / {BASE}")
        panel.set_title(title, fontsize="small")
    save(figure, path)


def _policies(rows: Sequence[Row]) -> list[str]:
    """Return the policies as they first come."""
    return list(dict.fromkeys(row.policy for row in rows))


def _seeds(rows: Collection[Row]) -> list[int]:
    return sorted({row.seed for row in rows})


def _urgent(row: Row) -> bool:
    return row.deadline_s is not None


def _other(row: Row) -> bool:
    return row.deadline_s is None


def _mean(rows: Sequence[Row], seed: int, which: Callable[[Row], bool]) -> float:
    return fmean(row.took_s for row in rows if row.seed == seed and which(row))


def _against(ratios: Sequence[float]) -> str:
    return f"{fmean(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
