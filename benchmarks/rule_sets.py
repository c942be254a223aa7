"""From the rules of Muri's public simulator to those of the papers, one difference at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from controller.scheduling.model import Cluster
from controller.scheduling.policy import Policy
from controller.simulator.families.base import Background
from controller.simulator.families.papers import INTERVAL_S, setup
from controller.simulator.policies import make
from controller.simulator.replicas.muri.loop import MuriSetup
from controller.simulator.replicas.muri.muri import MuriReplica
from controller.simulator.replicas.muri.ranked import srsf, srtf
from controller.simulator.replicas.muri.tiresias import TiresiasReplica
from controller.simulator.setup import Setup
from controller.simulator.speed import Exclusive, Interleaved

Step = tuple[str, Callable[[], Setup]]
"""What is different from the step before, and the setup."""

ON_CHANGE = "restarts cost only those who start or move"


def coded(name: str, *settings: tuple[str, float]) -> Setup:
    """Return the setup of a policy as coded, which is the same on all clusters."""
    return make(f"coded:{name}", Background(Cluster.uniform(1, 1), settings=settings))


def _alone(name: str, policy: Callable[[], Policy], places: str) -> Sequence[Step]:
    return (
        ("as coded", lambda: coded(name)),
        ("without the constant 1.015 of every iteration", lambda: MuriSetup(policy(), Exclusive())),
        (ON_CHANGE, lambda: Setup(policy(), Exclusive())),
        (f"{places}: as paper", lambda: setup(name)),
    )


def _muri(name: str, *, known: bool) -> Sequence[Step]:
    def kept() -> MuriReplica:
        return MuriReplica(name, known=known, unpack=False)

    return (
        ("as coded", lambda: coded(name)),
        ("groups that do not pay are not split", lambda: coded(name, ("unpack", 0))),
        (ON_CHANGE, lambda: Setup(kept(), kept().speed())),
        ("decisions every six minutes", lambda: Setup(kept(), kept().speed(), INTERVAL_S)),
        ("rounds by equation 3, no constant 1.015", lambda: Setup(kept(), Interleaved(), INTERVAL_S)),
        ("algorithm 1 of the paper, groups stay where they are: as paper", lambda: setup(name)),
    )


STEPS: Mapping[str, Sequence[Step]] = {
    "srtf": _alone("srtf", srtf, "running jobs stay where they are"),
    "srsf": _alone("srsf", srsf, "running jobs stay where they are"),
    "tiresias": _alone("tiresias", TiresiasReplica, "GPUs have places, jobs are consolidated"),
    "muri-s": _muri("muri-s", known=True),
    "muri-l": _muri("muri-l", known=False),
}
"""By policy, from coded to paper."""
