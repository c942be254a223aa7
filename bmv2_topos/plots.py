"""Plots of reports and of experiments' rows, where matplotlib is installed."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from bmv2_topos.testbeds.virtual.report import Report
from controller.figures import new_figure, save

_MARKERS = "osD^v<>Px*"


def draw_report(report: Report, path: Path) -> None:
    """Draw iteration times and the slots in use over the time of a run. Raises PlotsMissing."""
    figure, (upper, lower) = new_figure(2, height=2.8)
    for job in report.jobs:
        ends = list(itertools.accumulate(job.iteration_s, initial=job.start_s))[1:]
        upper.plot(ends, [1e3 * value for value in job.iteration_s], label=job.name, linewidth=1)
    upper.set_ylabel("iteration (ms)")
    upper.set_ylim(bottom=0)
    upper.legend()
    times = [sample.time_s for sample in report.occupancy]
    for job in report.jobs:
        slots = [sample.slots.get(job.name, 0) for sample in report.occupancy]
        lower.plot(times, slots, label=job.name, linewidth=1)
    lower.set_ylabel(f"slots in use (of {report.slots})")
    lower.set_xlabel("time (s)")
    save(figure, path)


def ticks(labels: Iterable[object]) -> list[tuple[float, str]]:
    """Return pairs of position (0, 1, …) and label, to pass as `x_ticks` to `draw_lines`."""
    return [(float(place), str(label)) for place, label in enumerate(labels)]


def draw_lines(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    path: Path,
    *,
    x: str,
    y: str,
    title: str = "",
    x_ticks: Sequence[tuple[float, str]] | None = None,
    dashed: Collection[str] = (),
) -> None:
    """Draw lines with a marker at each point.

    Args:
        lines: The points (x, y) of each line, by its name.
        path: The file to write.
        x: Label of the x axis.
        y: Label of the y axis.
        title: Title of the plot.
        x_ticks: Positions and labels on the x axis; None: matplotlib chooses.
        dashed: Names of lines to draw dashed, in the colour of the preceding line.

    Raises PlotsMissing without matplotlib.
    """
    figure, (panel,) = new_figure(1, height=2.8)
    colour = -1
    for marker, (name, points) in zip(itertools.cycle(_MARKERS), lines.items(), strict=False):
        colour += name not in dashed
        style = {"color": f"C{max(0, colour) % 10}", "linestyle": "--" if name in dashed else "-"}
        panel.plot(
            *zip(*points, strict=True), marker=marker, markersize=4, linewidth=1.2, label=name, **style
        )
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    if title:
        panel.set_title(title, fontsize="medium")
    if x_ticks:
        panel.set_xticks([at for at, _ in x_ticks], [label for _, label in x_ticks])
    panel.legend(fontsize="small")
    save(figure, path)
