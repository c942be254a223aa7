"""Tiresias as Muri's public simulator has it: GPUs are counted, wherever they are."""

from __future__ import annotations

from controller.scheduling.placement import Slots
from controller.scheduling.tiresias import Tiresias


class TiresiasReplica(Tiresias):
    """Discretised 2D-LAS on any GPUs that are free."""

    def _take(self, slots: Slots, gpus: int) -> tuple[int, ...] | None:
        return slots.take_scattered(gpus)
