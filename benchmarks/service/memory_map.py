"""Who has had which slots of each switch: recorded from a service that is killed now and then, and drawn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from controller.figures import new_figure, save
from ina.service.views import MemoryView, ShareView


@dataclass(slots=True)
class MemoryMap:
    """Divisions of all switches over time; the service itself forgets them when it ends.

    Attributes:
        slots: Slots of each switch.
        moments: Who had which slots from a time on, by switch and time, seconds on the service's clock.
        until_s: Time of the latest look.
    """

    slots: dict[str, int] = field(default_factory=dict)
    moments: dict[str, dict[float, list[ShareView]]] = field(default_factory=lambda: defaultdict(dict))
    until_s: float = 0.0

    def add(self, view: MemoryView) -> None:
        """Add what the API says."""
        self.slots = view["slots"]
        self.until_s = view["now_s"]
        for switch, moments in view["switches"].items():
            self.moments[switch] |= {moment["at_s"]: moment["shares"] for moment in moments}

    def spans(self, switch: str) -> list[tuple[float, float, list[ShareView]]]:
        """Return begin, end and division, in order; a division holds until the next is known."""
        found = sorted(self.moments[switch].items())
        ends = [*found, (self.until_s, [])]
        return [(begin_s, end_s, shares) for (begin_s, shares), (end_s, _) in pairwise(ends)]

    def shown(self) -> list[str]:
        """Return the switches at which somebody had slots."""
        return [switch for switch in self.slots if any(self.moments[switch].values())]


def draw(
    memory: MemoryMap,
    jobs: Sequence[str],
    faults: Mapping[float, str],
    away: Sequence[tuple[float, float]],
    path: Path,
) -> None:
    """Draw a panel for each switch: time, and slots by job; those that jobs share are in equal parts.

    Args:
        memory: What was recorded.
        jobs: The jobs, each of which has a colour.
        faults: What was done, by time.
        away: When there was no controller, from and until.
        path: The file to write.

    Raises PlotsMissing.
    """
    switches = memory.shown()
    figure, panels = new_figure(len(switches), height=1.7)
    colours = {job: f"C{number % 10}" for number, job in enumerate(jobs)}
    labelled: set[str] = set()
    for switch, panel in zip(switches, panels, strict=True):
        for begin_s, end_s, shares in memory.spans(switch):
            for share, low, high in _parts(shares):
                job = share["job"]
                label = None if job in labelled else job
                labelled.add(job)
                panel.bar(
                    begin_s,
                    high - low,
                    end_s - begin_s,
                    bottom=low,
                    align="edge",
                    color=colours[job],
                    linewidth=0,
                    label=label,
                    alpha=1.0 if share["standing"] == "granted" else 0.55,
                )
        for from_s, to_s in away:
            panel.axvspan(from_s, to_s, color="0.2", alpha=0.5, linewidth=0)
        for at_s in faults:
            panel.axvline(at_s, color="black", linewidth=0.8, linestyle=":")
        panel.set_ylabel(f"{switch}: slots")
        panel.set_ylim(0, memory.slots[switch])
        panel.set_xlim(0, memory.until_s)
    for at_s, what in faults.items():
        panels[0].annotate(
            what, (at_s, 1.02), xycoords=("data", "axes fraction"), fontsize="xx-small", rotation=30
        )
    panels[-1].set_xlabel("time (s)")
    figure.legend(loc="outside lower center", ncols=8, fontsize="x-small")
    save(figure, path)


def _parts(shares: Sequence[ShareView]) -> list[tuple[ShareView, float, float]]:
    """Return the part of the height that each job gets: of slots that several share, an equal one."""
    together: dict[tuple[int, int], list[ShareView]] = defaultdict(list)
    for share in shares:
        together[share["first"], share["slots"]].append(share)
    return [
        (share, first + slots * at / len(alike), first + slots * (at + 1) / len(alike))
        for (first, slots), alike in together.items()
        for at, share in enumerate(alike)
    ]
