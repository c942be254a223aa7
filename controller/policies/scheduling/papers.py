"""Policies of the papers, all in one speed model, so that they can be compared with each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.policies.family import Family, Setting, Setup, SimulationConfig, resolve_settings
from controller.policies.joint import Joint
from controller.policies.scheduling import baselines
from controller.policies.scheduling.beliefs import Told
from controller.policies.scheduling.deadlines import SLACK_MARGIN, OnTime, Slack, edf
from controller.policies.scheduling.gandiva import Gandiva
from controller.policies.scheduling.gittins import Gittins
from controller.policies.scheduling.model import RESOURCES
from controller.policies.scheduling.muri import Muri
from controller.policies.scheduling.policy import Policy
from controller.policies.scheduling.speed import Exclusive, Interleaved
from controller.policies.scheduling.themis import Themis
from controller.policies.scheduling.tiresias import Tiresias
from controller.policies.scheduling.weave import POWER, SHORT, TRUST, Weave

INTERVAL_S = 360.0
"""Interval at which Muri regroups: the paper's six minutes."""


@dataclass(frozen=True, slots=True)
class PaperConfig:
    """Settings of the policies, and the functions that make their setups.

    Attributes:
        interval_s: How often groups are formed (Muri), or reconsidered while jobs wait (weave-l).
        weave_interval_s: How often weave forms groups; 0: whenever jobs arrive or end.
        quantum_s: Length of a time slice (las, 2d-las, gandiva).
        noise: Largest relative error of the stage times that profilers measure (Muri, weave).
        estimate_error: Spread of the error of durations where they are known; see `Told`.
        restart_scale: Factor on the cost of restarts.
        members: Most jobs in a group of Muri's.
        worst_order: Muri interleaves as badly as possible.
        in_order: Muri groups neighbours in the queue.
        short: Weight of short jobs in weave.
        power: Weight of the tail in weave.
        width: By how many times the jobs that weave considers may exceed the cluster.
        trust: Spread of told durations' errors above which weave-s does not predict ends.
        margin: Part of a job's remaining run time; with less slack to its deadline it is urgent (slack).
        seed: Seed of the noise.
    """

    interval_s: float = INTERVAL_S
    weave_interval_s: float = 0.0
    quantum_s: float = 360.0
    noise: float = 0.0
    estimate_error: float = 0.0
    restart_scale: float = 1.0
    members: float = len(RESOURCES)
    worst_order: float = 0
    in_order: float = 0
    power: float = POWER
    short: float = SHORT
    width: float = 8
    trust: float = TRUST
    margin: float = SLACK_MARGIN
    seed: int = 0

    def alone(self, policy: Policy) -> Setup:
        """Setup for jobs with private GPUs."""
        return Setup(policy, Exclusive(self.restart_scale))

    def sharing(self, policy: Policy, *, worst: bool = False, interval_s: float = 0.0) -> Setup:
        """Setup for jobs that share GPUs by interleaving."""
        speed = Interleaved(longest=worst, restart_scale=self.restart_scale)
        return Setup(policy, speed, interval_s)

    def muri(self, name: str, *, known: bool = True) -> Setup:
        """Setup of Muri, with decisions at intervals."""
        worst = bool(self.worst_order)
        policy = Muri(
            name,
            known=known,
            members=int(self.members),
            worst=worst,
            blossom=not self.in_order,
            noise=self.noise,
            seed=self.seed,
            quantum_s=self.interval_s,
            told=self.told,
        )
        return self.sharing(policy, worst=worst, interval_s=self.interval_s)

    def weave(self, name: str, *, known: bool = True) -> Setup:
        """Setup of weave, with the same information as Muri."""
        policy = Weave(
            Interleaved(contention=(1.0,) * len(RESOURCES), restart_scale=self.restart_scale),
            name,
            known=known,
            power=self.power,
            short=self.short,
            width=int(self.width),
            trust=self.trust,
            quantum_s=None if known else self.interval_s,
            noise=self.noise,
            seed=self.seed,
            told=self.told,
        )
        return self.sharing(policy, interval_s=self.weave_interval_s)

    @property
    def told(self) -> Told:
        """Durations as policies learn them that know durations."""
        return Told(self.estimate_error, self.seed)


POLICIES: Mapping[str, tuple[str, Callable[[PaperConfig], Setup]]] = {
    "fifo": (
        "first in, first out: the head of the queue blocks",
        lambda by: by.alone(baselines.fifo()),
    ),
    "fifo-backfill": (
        "the same, but jobs that fit may overtake",
        lambda by: by.alone(baselines.fifo(backfill=True)),
    ),
    "sjf": (
        "shortest job first, durations known; nobody is stopped",
        lambda by: by.alone(baselines.sjf(by.told)),
    ),
    "srtf": (
        "shortest remaining time first, durations known; preemptive",
        lambda by: by.alone(baselines.srtf(by.told)),
    ),
    "srsf": (
        "shortest remaining service (time x GPUs) first, durations known; preemptive",
        lambda by: by.alone(baselines.srsf(by.told)),
    ),
    "las": (
        "least attained time first, durations unknown",
        lambda by: by.alone(baselines.las(quantum_s=by.quantum_s)),
    ),
    "2d-las": (
        "least attained service (time x GPUs) first, durations unknown",
        lambda by: by.alone(baselines.las_2d(quantum_s=by.quantum_s)),
    ),
    "tiresias": (
        "attained service (time x GPUs) in a few queues, durations unknown (Tiresias, NSDI'19)",
        lambda by: by.alone(Tiresias()),
    ),
    "qssf": (
        "least predicted service (time x GPUs) first; nobody is stopped (Helios, SC'21)",
        lambda by: by.alone(baselines.qssf()),
    ),
    "gittins": (
        "likeliest to end soon first, learnt from jobs that have ended (Tiresias, NSDI'19)",
        lambda by: by.alone(Gittins()),
    ),
    "themis": (
        "finish-time fairness by auctions of leases (Themis, NSDI'20)",
        lambda by: by.alone(Themis()),
    ),
    "edf": ("earliest deadline first; preemptive", lambda by: by.alone(edf(by.told))),
    "slack": (
        "shortest remaining service first, deadlines that would be missed before; ours",
        lambda by: by.alone(Slack(by.told, margin=by.margin)),
    ),
    "on-time": (
        "shortest remaining service first, deadlines as late as they allow; ours",
        lambda by: by.alone(OnTime(by.told)),
    ),
    "joint": (
        "the same order, and servers and trees by the links and slots that are left; ours",
        lambda by: Setup(Joint(by.told), Exclusive(by.restart_scale), places=True),
    ),
    "gandiva": (
        "time slices, and packing by trial (Gandiva, OSDI'18)",
        lambda by: by.sharing(Gandiva(quantum_s=by.quantum_s)),
    ),
    "muri-s": (
        "groups of jobs whose stages interleave, durations known (Muri, SIGCOMM'22)",
        lambda by: by.muri("muri-s"),
    ),
    "muri-l": ("the same, durations unknown", lambda by: by.muri("muri-l", known=False)),
    "weave-s": (
        "groups that are worth most to all who wait, durations known; ours",
        lambda by: by.weave("weave-s"),
    ),
    "weave-l": ("the same, durations unknown", lambda by: by.weave("weave-l", known=False)),
}
"""Description of each, and what makes a fresh setup."""

DEFAULT = PaperConfig()

SETTINGS = {
    "interval_s": Setting(
        "interval between formations of groups (muri, weave-l while jobs wait)", DEFAULT.interval_s, 1.0, 1e6
    ),
    "weave_interval_s": Setting("the same of weave; 0: whenever jobs come or end", 0.0, 0.0, 1e6),
    "quantum_s": Setting("length of a time slice (las, 2d-las, gandiva)", DEFAULT.quantum_s, 1.0, 1e6),
    "noise": Setting(
        "relative error of the stage times that are measured (muri, weave)", DEFAULT.noise, 0.0, 0.99
    ),
    "estimate_error": Setting(
        "spread (of the logarithm) of errors in durations (sjf, srtf, srsf, muri-s, weave-s)", 0.0, 0.0, 5.0
    ),
    "restart_scale": Setting("factor on the cost of restarts", DEFAULT.restart_scale, 0.0, 1e6),
    "members": Setting("most jobs in a group (muri)", DEFAULT.members, 1, len(RESOURCES), whole=True),
    "worst_order": Setting("1: muri interleaves as badly as possible", 0, 0, 1, whole=True),
    "in_order": Setting("1: muri groups neighbours in the queue", 0, 0, 1, whole=True),
    "power": Setting("how much weave looks after the tail; 0: the average alone", DEFAULT.power, 0.0, 10.0),
    "margin": Setting(
        "part of what a job still runs at which its deadline is urgent (slack)", SLACK_MARGIN, 0.0, 100.0
    ),
    "short": Setting("how much weave looks after short jobs' slowdown", DEFAULT.short, 0.0, 1.0),
    "width": Setting(
        "by how many times the jobs that weave looks at may exceed the cluster",
        DEFAULT.width,
        1,
        100,
        whole=True,
    ),
    "trust": Setting(
        "spread of durations' errors, as seen of jobs that ended, from which on weave-s foresees no ends",
        DEFAULT.trust,
        0.0,
        100.0,
    ),
}


def setup(name: str, plain: PaperConfig = DEFAULT) -> Setup:
    """Return a fresh policy with its speed model and interval."""
    return POLICIES[name][1](plain)


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a fresh policy with its speed model and interval."""
    return setup(name, PaperConfig(**resolve_settings(SETTINGS, config), seed=config.seed))


FAMILY = Family(
    "as the papers have them, in one speed model",
    {name: about for name, (about, _) in POLICIES.items()},
    make,
    settings=SETTINGS,
    main=[name for name in POLICIES if name not in ("fifo-backfill", "2d-las")],
)
