"""`on-time` without what it learns: an ablation of the page `which-policy`."""

from __future__ import annotations

from controller.scheduling.on_time import OnTime


class Unlearned(OnTime):
    """Jobs are taken not to slow each other down."""

    def __init__(self) -> None:
        super().__init__(learns=False)
