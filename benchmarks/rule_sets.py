"""From the rules of Muri's public simulator to those of the papers, one difference at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.replicas import MURI
from benchmarks.replicas.muri.loop import MuriRun
from benchmarks.replicas.muri.muri import MuriReplica
from benchmarks.replicas.muri.ranked import srsf, srtf
from benchmarks.replicas.muri.tiresias import TiresiasReplica
from controller.policies.families import papers
from controller.policies.families.base import SimulationConfig
from controller.policies.families.papers import INTERVAL_S
from controller.scheduling.policy import Policy
from controller.scheduling.speed import Exclusive, Interleaved
from controller.simulator.by_name import make
from controller.simulator.policy_run import PolicyRun
from controller.vocabulary import Cluster

Step = tuple[str, Callable[[], PolicyRun]]
"""Difference from the step before, and the policy run."""

ON_CHANGE = "restarts cost only those who start or move"


def replica(name: str, *settings: tuple[str, float]) -> PolicyRun:
    """Return the policy run of a policy as in the public code, which is the same on all clusters."""
    return make(f"{MURI}:{name}", SimulationConfig(Cluster.uniform(1, 1), settings=settings))


def _alone(name: str, policy: Callable[[], Policy], places: str) -> Sequence[Step]:
    return (
        ("as in the public code", lambda: replica(name)),
        ("without the constant 1.015 of every iteration", lambda: MuriRun(policy(), Exclusive())),
        (ON_CHANGE, lambda: PolicyRun(policy(), Exclusive())),
        (f"{places}: as paper", lambda: PolicyRun.of(papers.setup(name))),
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
        (
            "algorithm 1 of the paper, groups stay where they are: as paper",
            lambda: PolicyRun.of(papers.setup(name)),
        ),
    )


STEPS: Mapping[str, Sequence[Step]] = {
    "srtf": _alone("srtf", srtf, "running jobs stay where they are"),
    "srsf": _alone("srsf", srsf, "running jobs stay where they are"),
    "tiresias": _alone("tiresias", TiresiasReplica, "GPUs have places, jobs are consolidated"),
    "muri-s": _muri("muri-s", known=True),
    "muri-l": _muri("muri-l", known=False),
}
"""By policy, from the public code to the paper."""
