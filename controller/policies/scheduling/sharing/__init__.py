"""GPU sharing for heterogeneous job sizes, after a patent whose formulas are lost.

Each module says what of it is ours.

`features` profiles a job by co-running it with reference jobs, `models` predicts from that how fast any two
jobs will be on shared GPUs (four random forests), `interval` says when jobs may be preempted, `priority`
in which order they run, `packing` which jobs share GPUs, and `policy` combines these. The true speeds come
from `corun` (pairs on one GPU: measured or synthetic) and `scaling` (jobs of several GPUs); `speed` makes
them a speed model for the simulator.
"""

from controller.policies.scheduling.sharing.corun import (
    Demand,
    MadeUpPairs,
    MeasuredPairs,
    make_demands,
    read_gavel_pairs,
    read_lucid_pairs,
)
from controller.policies.scheduling.sharing.errors import (
    BadMeasurement,
    BadTraining,
    SharingError,
    UnknownModel,
)
from controller.policies.scheduling.sharing.features import Profile, Profiler, choose, profile_of
from controller.policies.scheduling.sharing.interference import InterferenceModel, Load, load_of
from controller.policies.scheduling.sharing.interval import FixedInterval, IntervalRule, PreemptionCost
from controller.policies.scheduling.sharing.models import Forests, Model, accuracy, draw, train
from controller.policies.scheduling.sharing.packing import Choice, Packer
from controller.policies.scheduling.sharing.policy import SharingPolicy
from controller.policies.scheduling.sharing.priority import Ledger
from controller.policies.scheduling.sharing.scaling import Noisy, Scaling, make_sync
from controller.policies.scheduling.sharing.speed import SharedSpeed

__all__ = [
    "BadMeasurement",
    "BadTraining",
    "Choice",
    "Demand",
    "FixedInterval",
    "Forests",
    "InterferenceModel",
    "IntervalRule",
    "Ledger",
    "Load",
    "MadeUpPairs",
    "MeasuredPairs",
    "Model",
    "Noisy",
    "Packer",
    "PreemptionCost",
    "Profile",
    "Profiler",
    "Scaling",
    "SharedSpeed",
    "SharingError",
    "SharingPolicy",
    "UnknownModel",
    "accuracy",
    "choose",
    "draw",
    "load_of",
    "make_demands",
    "make_sync",
    "profile_of",
    "read_gavel_pairs",
    "read_lucid_pairs",
    "train",
]
