"""From the rules of Muri's public simulator to those of the papers, one difference at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from controller.scheduling import baselines
from controller.scheduling.muri_coded import MuriCoded
from controller.scheduling.policy import Policy
from controller.scheduling.ranked import Moves
from controller.scheduling.tiresias import Tiresias
from controller.simulator.engine import Charge, Rules
from controller.simulator.setups import CODED, CODED_GROUPS, INTERVAL_S, Setup, setup
from controller.simulator.speed import Exclusive, Interleaved

Step = tuple[str, Callable[[], Setup]]
"""What is different from the step before, and the setup."""

ON_CHANGE = "restarts cost only those who start or move"


def _ranked(coded: str, plain: str, policy: Callable[[], Policy]) -> Sequence[Step]:
    return (
        ("as coded", lambda: setup(coded)),
        ("without the constant 1.015 of every iteration", lambda: Setup(policy(), Exclusive(), CODED)),
        (ON_CHANGE, lambda: Setup(policy(), Exclusive(), Rules())),
        ("running jobs stay where they are: as paper", lambda: setup(plain)),
    )


def _muri(name: str, *, known: bool) -> Sequence[Step]:
    def kept() -> MuriCoded:
        return MuriCoded(name, known=known, unpack=False)

    on_change = replace(CODED_GROUPS, charge=Charge.ON_CHANGE, merge_rel=0.0)
    return (
        ("as coded", lambda: setup(f"coded:{name}")),
        ("groups that do not pay are not split", lambda: setup(f"coded:{name}-keep")),
        (ON_CHANGE, lambda: Setup(kept(), kept().speed(), on_change)),
        (
            "decisions every six minutes",
            lambda: Setup(kept(), kept().speed(), replace(on_change, interval_s=INTERVAL_S)),
        ),
        (
            "rounds by equation 3, no constant 1.015",
            lambda: Setup(kept(), Interleaved(), Rules(interval_s=INTERVAL_S)),
        ),
        ("algorithm 1 of the paper, groups stay where they are: as paper", lambda: setup(name)),
    )


STEPS: Mapping[str, Sequence[Step]] = {
    "srtf": _ranked("coded:srtf", "srtf", lambda: baselines.srtf(moves=Moves.REPACK)),
    "srsf": _ranked("coded:srsf", "srsf", lambda: baselines.srsf(moves=Moves.REPACK)),
    "tiresias": (
        ("as coded", lambda: setup("coded:tiresias")),
        ("without the constant 1.015 of every iteration", lambda: Setup(Tiresias(), Exclusive(), CODED)),
        (ON_CHANGE, lambda: Setup(Tiresias(), Exclusive(), Rules())),
        ("GPUs have places, jobs are consolidated: as paper", lambda: setup("tiresias")),
    ),
    "muri-s": _muri("muri-s", known=True),
    "muri-l": _muri("muri-l", known=False),
}
"""By policy, from coded to paper."""
