"""The interleaved timeline of a group as text: a row for each resource, a letter for each job."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from controller.policies.grouping.efficiency import Span

IDLE = "·"


def draw(spans: Sequence[Span], resources: Sequence[str], *, width: int = 64) -> list[str]:
    """Return a line for each resource and one with the time, for one round in `width` characters.

    Job 0 is A. Each span that takes time has at least one character, as far as there is room.

    >>> draw([Span(0, 0, 0, 2), Span(1, 1, 0, 2), Span(0, 1, 2, 3)], ["cpu", "gpu"], width=6)
    ['cpu |AAAA··|', 'gpu |BBBBAA|', '    0      3 s']
    """
    length_s = max((span.end_s for span in spans), default=0.0)
    margin = max(map(len, resources))
    lines = []
    for number, resource in enumerate(resources):
        cells = [IDLE] * width
        for span in spans:
            if span.resource == number:
                first = min(round(span.start_s / length_s * width), width - 1)
                last = max(round(span.end_s / length_s * width), first + 1)
                cells[first:last] = ascii_uppercase[span.job] * (last - first)
        lines.append(f"{resource:>{margin}} |{''.join(cells)}|")
    end = f"{length_s:.3g} s"
    return [*lines, f"{'':{margin}} 0{'':{width}}{end}"]
