"""From the rules of Muri's public simulator to those of the papers, one difference at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from controller.scheduling.policy import Policy
from controller.simulator.families.base import SimulationConfig
from controller.simulator.families.papers import INTERVAL_S, policy_run
from controller.simulator.policies import make
from controller.simulator.policy_run import PolicyRun
from controller.simulator.replicas.muri.loop import MuriRun
from controller.simulator.replicas.muri.muri import MuriReplica
from controller.simulator.replicas.muri.ranked import srsf, srtf
from controller.simulator.replicas.muri.tiresias import TiresiasReplica
from controller.simulator.speed import Exclusive, Interleaved
from controller.vocabulary import Cluster

Step = tuple[str, Callable[[], PolicyRun]]
"""Difference from the step before, and the policy run."""

ON_CHANGE = "restarts cost only those who start or move"


def replica(name: str, *settings: tuple[str, float]) -> PolicyRun:
    """Return the policy run of a policy as in the public code, which is the same on all clusters."""
    return make(f"muri-replica:{name}", SimulationConfig(Cluster.uniform(1, 1), settings=settings))


def _alone(name: str, policy: Callable[[], Policy], places: str) -> Sequence[Step]:
    return (
        ("as in the public code", lambda: replica(name)),
        ("without the constant 1.015 of every iteration", lambda: MuriRun(policy(), Exclusive())),
        (ON_CHANGE, lambda: PolicyRun(policy(), Exclusive())),
        (f"{places}: as paper", lambda: policy_run(name)),
    )


def _muri(name: str, *, known: bool) -> Sequence[Step]:
    def kept() -> MuriReplica:
        return MuriReplica(name, known=known, unpack=False)

    return (
        ("as in the public code", lambda: replica(name)),
        ("groups that do not pay are not split", lambda: replica(name, ("unpack", 0))),
        (ON_CHANGE, lambda: PolicyRun(kept(), kept().speed())),
        ("decisions every six minutes", lambda: PolicyRun(kept(), kept().speed(), INTERVAL_S)),
        ("rounds by equation 3, no constant 1.015", lambda: PolicyRun(kept(), Interleaved(), INTERVAL_S)),
        ("algorithm 1 of the paper, groups stay where they are: as paper", lambda: policy_run(name)),
    )


STEPS: Mapping[str, Sequence[Step]] = {
    "srtf": _alone("srtf", srtf, "running jobs stay where they are"),
    "srsf": _alone("srsf", srsf, "running jobs stay where they are"),
    "tiresias": _alone("tiresias", TiresiasReplica, "GPUs have places, jobs are consolidated"),
    "muri-s": _muri("muri-s", known=True),
    "muri-l": _muri("muri-l", known=False),
}
"""By policy, from the public code to the paper."""
