"""``sharing:POLICY``: sharing for heterogeneous job sizes, in a speed model derived from measured pairs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from controller.policies.families.base import Family, Setting, SimulationConfig, readable, resolve_settings
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid import config_by_columns
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.sharing import (
    Load,
    PreemptionCost,
    SharedSpeed,
    read_gavel_pairs,
    read_lucid_pairs,
)
from controller.policies.scheduling.sharing.corun import name_of
from controller.policies.scheduling.sharing.policies import (
    POLICIES,
    REFERENCES,
    Scenario,
    SharingConfig,
    of_kinds,
)
from controller.policies.setup import Setup

WITHIN_S, BEYOND_S = 40.0, 60.0
"""Cost of a preemption for jobs of one node and for larger ones."""

PROFILE_S = 80.0
"""A profile beside four reference jobs, 20 s each."""

SETTINGS = {
    "speeds_known": Setting("1: speeds are known instead of predicted", 0, 0, 1, whole=True),
    "profile_s": Setting("how long a new kind and size is profiled before it may start", PROFILE_S, 0, 1e6),
    "collect": Setting("1: speeds are learnt from jobs that run, too", 1, 0, 1, whole=True),
    "interval_s": Setting("interval between preemptions; 0: by load and cost", 0, 0, 1e6),
}


def dress(specs: Sequence[Submission], config: SimulationConfig) -> list[Submission]:
    """Return the jobs with kinds that are known in pairs."""
    kinds = sorted(_scenario(config.pairs, config.seed).truth.kinds)
    return of_kinds(specs, kinds, seed=config.seed)


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a fresh policy with its speed model and interval."""
    scenario = _scenario(config.pairs, config.seed)
    cost = PreemptionCost(WITHIN_S, BEYOND_S, config.cluster.servers[0].gpus)
    load_of = _loads(scenario, made_up=config.pairs is None)
    chosen = resolve_settings(SETTINGS, config)
    needs = SharingConfig(
        scenario,
        cost,
        load_of,
        speeds_known=bool(chosen["speeds_known"]),
        interval_s=chosen["interval_s"] or None,
        profile_s=chosen["profile_s"],
        collect=bool(chosen["collect"]),
    )
    policy = POLICIES[name].make(needs)
    return Setup(policy, SharedSpeed(scenario.truth, load_of=load_of, cost=cost))


FAMILY = Family(
    "GPUs shared by jobs of different sizes; --pairs FILE of Lucid's or Gavel's, or made-up ones",
    {name: known.about for name, known in POLICIES.items()},
    make,
    dress,
    SETTINGS,
    main=("sharing",),
)


@lru_cache(maxsize=4)
def _scenario(pairs: Path | None, seed: int) -> Scenario:
    if pairs is None:
        return Scenario(None, seed=seed)
    with readable(pairs):
        measured = read_gavel_pairs(pairs) if pairs.suffix == ".json" else read_lucid_pairs(pairs)
    few = max(1, len(measured.kinds) // 2)  # a small file has not enough kinds for all reference jobs
    return Scenario(measured, seed=seed, references=min(REFERENCES, few))


def _loads(scenario: Scenario, *, made_up: bool) -> Callable[[Submission], Load]:
    """Return the function that gives a job's kind: its model's name, or, in Lucid's logs, its configuration.

    Among synthetic kinds any other model is assigned one too, always the same.
    """
    kinds = frozenset(scenario.truth.kinds)
    names = sorted(kinds)

    def load_of(spec: Submission) -> Load:
        kind = spec.model
        if kind not in kinds and made_up:
            kind = names[zlib.crc32(kind.encode()) % len(names)]
        elif kind not in kinds and {"dataset", "amp"} <= spec.extra.keys():
            kind = name_of(config_by_columns(spec))
        if kind not in kinds:
            few = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise BadSpec(
                f"job {spec.name!r} trains {kind!r}, for which --pairs lacks some pairs; it has {few}"
            )
        return Load(kind, spec.gpus)

    return load_of
