"""Plots of simulations, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from controller.figures import new_figure, save
from controller.policies.scheduling.policy import RESOURCES
from controller.simulator.engine import Curves
from controller.simulator.once import PlannedGroup

# ---------------------------------------------------------------------------
# Data of plots: distributions, and curves over time as means of equal intervals.


def cdf(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the empirical distribution: each value, ascending, with the fraction of values up to it.

    >>> cdf([3.0, 1.0])
    [(1.0, 0.5), (3.0, 1.0)]
    """
    return [(value, (number + 1) / len(values)) for number, value in enumerate(sorted(values))]


def means(
    times_s: Sequence[float], values: Sequence[float], end_s: float, bins: int = 200
) -> list[tuple[float, float]]:
    """Return the mean of a step curve in each of `bins` equal intervals.

    O(samples + bins).

    Args:
        times_s: Ascending times at which the value changes.
        values: The value from each of these times to the next.
        end_s: End of the last interval; the first begins at ``times_s[0]``.
        bins: Number of intervals.

    Returns:
        For each interval its middle and the mean. Empty if there is no sample, or none before `end_s`.

    >>> means([0.0, 1.0], [0.0, 4.0], 4.0, bins=2)
    [(1.0, 2.0), (3.0, 4.0)]
    """
    if not times_s or end_s <= times_s[0]:
        return []
    begin_s = times_s[0]
    width_s = (end_s - begin_s) / bins
    sums = [0.0] * bins
    for (start_s, stop_s), value in zip(pairwise([*times_s, end_s]), values, strict=True):
        first = min(int((start_s - begin_s) / width_s), bins - 1)
        last = min(int((stop_s - begin_s) / width_s), bins - 1)
        for number in range(first, last + 1):
            left_s = begin_s + number * width_s
            overlap_s = min(stop_s, left_s + width_s) - max(start_s, left_s)
            sums[number] += value * max(0.0, overlap_s)
    return [(begin_s + (number + 0.5) * width_s, total / width_s) for number, total in enumerate(sums)]


LABEL, TITLE = 32, 100
"""Maximum numbers of characters of a job's label, and of a title."""

MOST_PANELS = 50
"""Maximum number of panels below each other: the size of pictures is limited."""


def draw_jcts(jcts_s: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draw the distribution of completion times of each policy. Raises PlotsMissing."""
    figure, (panel,) = new_figure(1)
    for name, values in jcts_s.items():
        points = cdf(values)
        panel.step([at for at, _ in points], [part for _, part in points], label=name, linewidth=1.2)
    panel.set_xscale("log")
    panel.set_xlabel("job completion time (s)")
    panel.set_ylabel("fraction of jobs")
    panel.set_ylim(0, 1)
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
    save(figure, path)


def draw_utilisation(curves: Mapping[str, tuple[Curves, float]], path: Path) -> None:
    """Draw the queue, and the utilisation of each resource, over the time of each policy's run.

    `curves` has, by policy, the curves of a run and the time in seconds at which the run ended. Resources
    for which no job has a profile are left out. Raises PlotsMissing.
    """
    used = [name for name in RESOURCES if any(any(c.busy[name]) for c, _ in curves.values())]
    figure, (queue, given, *panels) = new_figure(2 + len(used))
    for policy, (curve, end_s) in curves.items():
        rows = [(queue, curve.queue), (given, curve.gpus)]
        rows += [(panel, curve.busy[name]) for panel, name in zip(panels, used, strict=True)]
        for panel, values in rows:
            points = means(curve.time_s, values, end_s)
            panel.plot(
                [at / 3600 for at, _ in points], [value for _, value in points], label=policy, linewidth=1
            )
    queue.set_ylabel("waiting jobs")
    given.set_ylabel("GPUs given")
    for panel, name in zip(panels, used, strict=True):
        panel.set_ylabel(f"{name} busy")
    for panel in (queue, given, *panels):
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    queue.legend(fontsize="small")
    (panels[-1] if panels else given).set_xlabel("time (h)")
    save(figure, path)


def draw_timelines(groups: Mapping[str, PlannedGroup], path: Path) -> None:
    """Draw one round of each group under its title, with a row for each resource and a colour for each job.

    `groups` has the groups by title; only the first `MOST_PANELS` are drawn. Raises PlotsMissing.
    """
    figure, panels = new_figure(min(max(1, len(groups)), MOST_PANELS))
    for (title, planned), panel in zip(groups.items(), panels, strict=False):
        for number, job in enumerate(planned.group.jobs):
            boxes = [span for span in planned.spans if span.job == number]
            panel.barh(
                [span.resource for span in boxes],
                [span.end_s - span.start_s for span in boxes],
                left=[span.start_s for span in boxes],
                color=f"C{number}",
                label=_plain(job.spec.name, LABEL),
            )
        panel.set_yticks(range(len(RESOURCES)), RESOURCES)
        panel.invert_yaxis()
        panel.set_xlabel("time in a round (s)")
        panel.set_title(_plain(title, TITLE), fontsize="small")
        panel.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)


def _plain(text: str, most: int) -> str:
    """Return a name as a label of at most `most` characters that Matplotlib shows as it is written.

    Otherwise a dollar sign would begin a formula, and an underscore at the beginning would hide the label.
    """
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return "\N{ZERO WIDTH SPACE}" * text.startswith("_") + text.replace("$", r"\$")
