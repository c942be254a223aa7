"""Policies by name, each with the speed model and the rules that it is simulated under.

Two rule sets. ``coded:NAME`` follows Muri's public simulator to the digit; the plain names follow the
papers, all in one speed model, so that they can be compared with each other. Across rule sets they cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from controller.scheduling import baselines
from controller.scheduling.antman import AntMan, AntManSpeed
from controller.scheduling.errors import BadSpec
from controller.scheduling.gandiva import Gandiva
from controller.scheduling.gittins import Gittins
from controller.scheduling.model import Cluster, JobSpec
from controller.scheduling.muri import Muri
from controller.scheduling.muri_coded import ALONE, MuriCoded, MuriCodedSpeed
from controller.scheduling.policy import Policy, SpeedModel
from controller.scheduling.ranked import Moves
from controller.scheduling.themis import Themis
from controller.scheduling.themis_coded import ThemisCoded
from controller.scheduling.tiresias import Tiresias
from controller.scheduling.weave import Weave
from controller.simulator.engine import Charge, Rules, simulate
from controller.simulator.record import Result
from controller.simulator.speed import Exclusive, Interleaved


@dataclass(frozen=True, slots=True)
class Setup:
    """A fresh policy and what it is simulated under.

    Attributes:
        policy: The policy; belongs to one run.
        speed: How fast jobs run.
        rules: How the simulator behaves.
        prepare: What becomes of the jobs before they are run.
        in_steps: Time goes in steps of the rules' interval: a job has ended when the step of its end is over.
    """

    policy: Policy
    speed: SpeedModel
    rules: Rules
    prepare: Callable[[Sequence[JobSpec]], Sequence[JobSpec]] = list
    in_steps: bool = False

    def run(
        self,
        specs: Sequence[JobSpec],
        cluster: Cluster,
        *,
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Result:
        """Simulate `specs` on `cluster`. Options and errors are those of `controller.simulator.simulate`."""
        result = simulate(
            self.prepare(specs),
            cluster,
            self.policy,
            self.speed,
            self.rules,
            detail=detail,
            verify=verify,
            progress=progress,
        )
        if not self.in_steps:
            return result
        step_s = self.rules.interval_s
        jobs = [replace(job, finish_s=_end_of_step(job.finish_s, step_s)) for job in result.jobs]
        return replace(result, jobs=jobs)


def _end_of_step(time_s: float, step_s: float) -> float:
    return math.ceil(time_s / step_s - 1e-6) * step_s


INTERVAL_S = 360.0
"""How often Muri regroups: the paper's six minutes."""

CODED = Rules(Charge.EVERY_EVENT, merge_rel=1e-9)
CODED_EXACT_ENDS = Rules(Charge.EVERY_EVENT)
CODED_GROUPS = Rules(Charge.EVERY_EVENT, merge_rel=1e-9, merge_abs_s=1e-4)


def _alone(policy: Policy, rules: Rules = CODED) -> Setup:
    return Setup(policy, AntManSpeed(ALONE), rules)


def _weave(name: str, *, known: bool = True, coded: bool = False) -> Setup:
    if coded:
        return Setup(Weave(MuriCodedSpeed(), name, known=known), MuriCodedSpeed(), CODED_GROUPS)
    return _grouping(Weave(Interleaved(), name, known=known, quantum_s=None if known else INTERVAL_S))


def _muri(policy: MuriCoded) -> Setup:
    return Setup(policy, policy.speed(), CODED_GROUPS)


def _plain(policy: Policy) -> Setup:
    return Setup(policy, Exclusive(), Rules())


def _grouping(policy: Policy, *, worst: bool = False) -> Setup:
    return Setup(policy, Interleaved(longest=worst), Rules(interval_s=INTERVAL_S))


SETUPS: dict[str, Callable[[], Setup]] = {
    "fifo": lambda: _plain(baselines.fifo()),
    "fifo-backfill": lambda: _plain(baselines.fifo(backfill=True)),
    "sjf": lambda: _plain(baselines.sjf()),
    "srtf": lambda: _plain(baselines.srtf()),
    "srsf": lambda: _plain(baselines.srsf()),
    "las": lambda: _plain(baselines.las()),
    "2d-las": lambda: _plain(baselines.las_2d()),
    "tiresias": lambda: _plain(Tiresias(consolidated=True)),
    "qssf": lambda: _plain(baselines.qssf()),
    "gittins": lambda: _plain(Gittins()),
    "themis": lambda: _plain(Themis()),
    "gandiva": lambda: Setup(Gandiva(), Interleaved(), Rules()),
    "muri-s": lambda: _grouping(Muri("muri-s")),
    "muri-l": lambda: _grouping(Muri("muri-l", known=False)),
    "muri-s-2": lambda: _grouping(Muri("muri-s-2", members=2)),
    "muri-s-3": lambda: _grouping(Muri("muri-s-3", members=3)),
    "muri-s-worst": lambda: _grouping(Muri("muri-s-worst", worst=True), worst=True),
    "muri-s-in-order": lambda: _grouping(Muri("muri-s-in-order", blossom=False)),
    "weave-s": lambda: _weave("weave-s"),
    "weave-l": lambda: _weave("weave-l", known=False),
    "coded:srtf": lambda: _alone(baselines.srtf(moves=Moves.REPACK)),
    "coded:srsf": lambda: _alone(baselines.srsf(moves=Moves.REPACK)),
    "coded:tiresias": lambda: _alone(Tiresias(), CODED_EXACT_ENDS),
    "coded:antman": lambda: _alone(AntMan()),
    "coded:themis": lambda: _alone(ThemisCoded()),
    "coded:muri-s": lambda: _muri(MuriCoded("muri-s")),
    "coded:muri-s-keep": lambda: _muri(MuriCoded("muri-s-keep", unpack=False)),
    "coded:muri-l": lambda: _muri(MuriCoded("muri-l", known=False)),
    "coded:muri-l-keep": lambda: _muri(MuriCoded("muri-l-keep", known=False, unpack=False)),
    "coded:muri-l-2": lambda: _muri(MuriCoded("muri-l-2", known=False, members=2)),
    "coded:muri-l-3": lambda: _muri(MuriCoded("muri-l-3", known=False, members=3)),
    "coded:muri-l-2-keep": lambda: _muri(MuriCoded("muri-l-2-keep", known=False, members=2, unpack=False)),
    "coded:muri-l-3-keep": lambda: _muri(MuriCoded("muri-l-3-keep", known=False, members=3, unpack=False)),
    "coded:muri-l-worst": lambda: _muri(MuriCoded("muri-l-worst", known=False, worst=True, unpack=False)),
    "coded:muri-l-in-order": lambda: _muri(
        MuriCoded("muri-l-in-order", known=False, blossom=False, unpack=False)
    ),
    "coded:weave-s": lambda: _weave("weave-s", coded=True),
    "coded:weave-l": lambda: _weave("weave-l", known=False, coded=True),
}
"""Fresh setups by name; ``-keep`` does not split groups that do not pay (``--autopack False`` there)."""


def setup(name: str) -> Setup:
    """Return a fresh setup. Raises BadSpec for an unknown name."""
    if name not in SETUPS:
        raise BadSpec(f"policy {name!r} is unknown; known are {', '.join(SETUPS)}")
    return SETUPS[name]()
