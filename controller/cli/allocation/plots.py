"""Pictures of what allocation policies decide."""

from __future__ import annotations

from pathlib import Path

from controller.memory.policy import Answer, Question, Standing
from controller.simulator.plots import new_figure, save

HATCH = {Standing.GRANTED: "", Standing.SHARED: "//", Standing.ENDED: "xx"}


def draw_memory(question: Question, answer: Answer, path: Path) -> None:
    """Draw which slots of each switch are whose; shared ones are hatched. Raises PlotsMissing."""
    used = [
        each for each in question.cluster.switches if any(each.name in on for on in answer.regions.values())
    ]
    colours = {job.name: f"C{number % 10}" for number, job in enumerate(question.jobs)}
    figure, (panel,) = new_figure(1)
    figure.set_size_inches(8, 1.6 + 0.45 * max(1, len(used)))
    for row, switch in enumerate(used):
        sharers: dict[tuple[int, int], list[str]] = {}
        for name, on in answer.regions.items():
            if (region := on.get(switch.name)) is not None and region.size:
                sharers.setdefault((region.offset, region.size), []).append(name)
        panel.barh(row, switch.slots, color="0.93", height=0.8)
        for (offset, size), names in sharers.items():
            for part, name in enumerate(names):
                height = 0.8 / len(names)
                low = row - 0.4 + part * height
                panel.barh(
                    low,
                    size,
                    left=offset,
                    height=height,
                    align="edge",
                    color=colours[name],
                    hatch=HATCH[answer.standing[name]],
                    edgecolor="white",
                    linewidth=0.5,
                )
    panel.set_yticks(range(len(used)), [switch.name for switch in used])
    panel.invert_yaxis()
    panel.set_xlabel("slots (hatched: shared, a band for each job)")
    for name, colour in colours.items():
        panel.barh(0, 0, color=colour, label=name)
    if len(colours) <= 30:
        panel.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save(figure, path)
