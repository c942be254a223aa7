"""Lucid: a scheduler that neither preempts nor touches jobs (Hu et al., ASPLOS'23).

`profiler` measures a job's `usage`, `analyser` classes it, `binder` says which two jobs may share GPUs,
`durations` and `throughput` predict, and `policy` puts it all together; `online` learns while it runs, and
`tuner` looks for better settings. `tree` and `additive` hold the learned models as plain data, so that only
training needs scikit-learn, interpret or rapidfuzz.
"""

from controller.policies.scheduling.lucid.additive import AdditiveModel
from controller.policies.scheduling.lucid.analyser import grow, held_out_accuracy, sizes_from_pairs
from controller.policies.scheduling.lucid.binder import (
    BinderRules,
    Candidate,
    Refusal,
    Sharing,
    refusal,
    strategy,
)
from controller.policies.scheduling.lucid.durations import DurationModel, Facts, submission, train_durations
from controller.policies.scheduling.lucid.errors import BadSample, LucidError
from controller.policies.scheduling.lucid.isotonic import pool_adjacent_violators
from controller.policies.scheduling.lucid.measured import Config, Pair, read_pairs, read_usages
from controller.policies.scheduling.lucid.online import OnlineLucid, OnlineRules
from controller.policies.scheduling.lucid.policy import LucidPolicy
from controller.policies.scheduling.lucid.profiler import ProfilerRules
from controller.policies.scheduling.lucid.speed import PairSpeed, config_by_columns
from controller.policies.scheduling.lucid.throughput import ThroughputModel, train_throughput
from controller.policies.scheduling.lucid.tree import PackingTree, accuracy
from controller.policies.scheduling.lucid.usage import Size, Usage, size_of

__all__ = [
    "AdditiveModel",
    "BadSample",
    "BinderRules",
    "Candidate",
    "Config",
    "DurationModel",
    "Facts",
    "LucidError",
    "LucidPolicy",
    "OnlineLucid",
    "OnlineRules",
    "PackingTree",
    "Pair",
    "PairSpeed",
    "ProfilerRules",
    "Refusal",
    "Sharing",
    "Size",
    "ThroughputModel",
    "Usage",
    "accuracy",
    "config_by_columns",
    "grow",
    "held_out_accuracy",
    "pool_adjacent_violators",
    "read_pairs",
    "read_usages",
    "refusal",
    "size_of",
    "sizes_from_pairs",
    "strategy",
    "submission",
    "train_durations",
    "train_throughput",
]
