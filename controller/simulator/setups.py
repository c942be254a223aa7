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


def _weave(name: str, *, known: bool = True) -> Setup:
    return Setup(Weave(MuriCodedSpeed(), name, known=known), MuriCodedSpeed(), CODED_GROUPS)


def _muri(policy: MuriCoded) -> Setup:
    return Setup(policy, policy.speed(), CODED_GROUPS)


@dataclass(frozen=True, slots=True)
class Plain:
    """What the plain policies go by, and how they are set up.

    Attributes:
        interval_s: How often groups are formed (Muri, weave).
        quantum_s: How long a time slice is (las, 2d-las, gandiva).
        noise: Relative error of the stage times that Muri's profiler measures, at most.
        restart_scale: Factor on what restarts cost.
        seed: Of the noise.
    """

    interval_s: float = INTERVAL_S
    quantum_s: float = 360.0
    noise: float = 0.0
    restart_scale: float = 1.0
    seed: int = 0

    def alone(self, policy: Policy) -> Setup:
        """Every job has GPUs of its own."""
        return Setup(policy, Exclusive(self.restart_scale), Rules())

    def sharing(self, policy: Policy, *, worst: bool = False, interval_s: float = 0.0) -> Setup:
        """Jobs that share GPUs interleave."""
        speed = Interleaved(longest=worst, restart_scale=self.restart_scale)
        return Setup(policy, speed, Rules(interval_s=interval_s))

    def grouping(self, policy: Policy, *, worst: bool = False) -> Setup:
        """The same, with decisions at intervals."""
        return self.sharing(policy, worst=worst, interval_s=self.interval_s)

    def muri(
        self, name: str, *, known: bool = True, members: int = 4, worst: bool = False, blossom: bool = True
    ) -> Muri:
        """Return Muri."""
        return Muri(
            name,
            known=known,
            members=members,
            worst=worst,
            blossom=blossom,
            noise=self.noise,
            seed=self.seed,
            quantum_s=self.interval_s,
        )

    def weave(self, name: str, *, known: bool = True) -> Setup:
        """Weave, which is told how fast groups are."""
        quantum_s = None if known else self.interval_s
        return self.grouping(Weave(Interleaved(), name, known=known, quantum_s=quantum_s))


SETUPS: dict[str, Callable[[Plain], Setup]] = {
    "fifo": lambda by: by.alone(baselines.fifo()),
    "fifo-backfill": lambda by: by.alone(baselines.fifo(backfill=True)),
    "sjf": lambda by: by.alone(baselines.sjf()),
    "srtf": lambda by: by.alone(baselines.srtf()),
    "srsf": lambda by: by.alone(baselines.srsf()),
    "las": lambda by: by.alone(baselines.las(quantum_s=by.quantum_s)),
    "2d-las": lambda by: by.alone(baselines.las_2d(quantum_s=by.quantum_s)),
    "tiresias": lambda by: by.alone(Tiresias(consolidated=True)),
    "qssf": lambda by: by.alone(baselines.qssf()),
    "gittins": lambda by: by.alone(Gittins()),
    "themis": lambda by: by.alone(Themis()),
    "gandiva": lambda by: by.sharing(Gandiva(quantum_s=by.quantum_s)),
    "muri-s": lambda by: by.grouping(by.muri("muri-s")),
    "muri-l": lambda by: by.grouping(by.muri("muri-l", known=False)),
    "muri-s-2": lambda by: by.grouping(by.muri("muri-s-2", members=2)),
    "muri-s-3": lambda by: by.grouping(by.muri("muri-s-3", members=3)),
    "muri-s-worst": lambda by: by.grouping(by.muri("muri-s-worst", worst=True), worst=True),
    "muri-s-in-order": lambda by: by.grouping(by.muri("muri-s-in-order", blossom=False)),
    "weave-s": lambda by: by.weave("weave-s"),
    "weave-l": lambda by: by.weave("weave-l", known=False),
    "coded:srtf": lambda _: _alone(baselines.srtf(moves=Moves.REPACK)),
    "coded:srsf": lambda _: _alone(baselines.srsf(moves=Moves.REPACK)),
    "coded:tiresias": lambda _: _alone(Tiresias(), CODED_EXACT_ENDS),
    "coded:antman": lambda _: _alone(AntMan()),
    "coded:themis": lambda _: _alone(ThemisCoded()),
    "coded:muri-s": lambda _: _muri(MuriCoded("muri-s")),
    "coded:muri-s-keep": lambda _: _muri(MuriCoded("muri-s-keep", unpack=False)),
    "coded:muri-l": lambda _: _muri(MuriCoded("muri-l", known=False)),
    "coded:muri-l-keep": lambda _: _muri(MuriCoded("muri-l-keep", known=False, unpack=False)),
    "coded:muri-l-2": lambda _: _muri(MuriCoded("muri-l-2", known=False, members=2)),
    "coded:muri-l-3": lambda _: _muri(MuriCoded("muri-l-3", known=False, members=3)),
    "coded:muri-l-2-keep": lambda _: _muri(MuriCoded("muri-l-2-keep", known=False, members=2, unpack=False)),
    "coded:muri-l-3-keep": lambda _: _muri(MuriCoded("muri-l-3-keep", known=False, members=3, unpack=False)),
    "coded:muri-l-worst": lambda _: _muri(MuriCoded("muri-l-worst", known=False, worst=True, unpack=False)),
    "coded:muri-l-in-order": lambda _: _muri(
        MuriCoded("muri-l-in-order", known=False, blossom=False, unpack=False)
    ),
    "coded:weave-s": lambda _: _weave("weave-s"),
    "coded:weave-l": lambda _: _weave("weave-l", known=False),
}
"""Fresh setups by name; ``-keep`` does not split groups that do not pay (``--autopack False`` there)."""


def setup(name: str, plain: Plain = Plain()) -> Setup:
    """Return a fresh setup. Raises BadSpec for an unknown name."""
    if name not in SETUPS:
        raise BadSpec(f"policy {name!r} is unknown; known are {', '.join(SETUPS)}")
    return SETUPS[name](plain)
