"""Policies of papers, all simulated in one speed model, so that their results can be compared."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from controller.policies.family import Family, Setup, SimulationConfig, declared_settings, resolve_options
from controller.policies.scheduling import baselines
from controller.policies.scheduling.options import PaperOptions
from controller.policies.scheduling.policy import RESOURCES, Policy
from controller.policies.scheduling.speed import ExclusiveSpeed, InterleavedSpeed


def _load(module: str) -> Any:
    """Import and return a module of policies; importing all modules takes longer than a short run."""
    return importlib.import_module(f"controller.policies.{module}")


def _alone(policy: Policy, options: PaperOptions) -> Setup:
    """Return the setup of a policy that gives each job GPUs of its own."""
    return Setup(policy, ExclusiveSpeed(options.restart_scale))


def _interleaved(
    policy: Policy, options: PaperOptions, interval_s: float = 0.0, *, worst: bool = False
) -> Setup:
    """Return the setup of a policy whose jobs share GPUs by interleaving."""
    return Setup(policy, InterleavedSpeed(longest=worst, restart_scale=options.restart_scale), interval_s)


def _muri(name: str, options: PaperOptions, *, known: bool = True) -> Setup:
    policy = _load("scheduling.muri").Muri(options, name, known=known)
    return _interleaved(policy, options, options.interval_s, worst=options.worst_order)


def _weave(options: PaperOptions) -> Setup:
    """Return the setup of weave, which expects rounds without contention, as Muri-S does."""
    speed = InterleavedSpeed(contention=(1.0,) * len(RESOURCES), restart_scale=options.restart_scale)
    return _interleaved(_load("scheduling.weave").Weave(speed, options), options, options.weave_interval_s)


POLICIES: Mapping[str, tuple[str, Callable[[PaperOptions], Setup]]] = {
    "fifo": (
        "first in, first out: the head of the queue blocks later jobs",
        lambda by: _alone(baselines.fifo(), by),
    ),
    "fifo-backfill": (
        "first in, first out, but jobs that fit may overtake",
        lambda by: _alone(baselines.fifo(backfill=True), by),
    ),
    "sjf": (
        "shortest job first, durations known; not preemptive",
        lambda by: _alone(baselines.sjf(by.estimates), by),
    ),
    "srtf": (
        "shortest remaining time first, durations known; preemptive",
        lambda by: _alone(baselines.srtf(by.estimates), by),
    ),
    "srsf": (
        "shortest remaining service (time x GPUs) first, durations known; preemptive",
        lambda by: _alone(baselines.srsf(by.estimates), by),
    ),
    "las": (
        "least attained time first, durations unknown",
        lambda by: _alone(baselines.las(quantum_s=by.quantum_s), by),
    ),
    "2d-las": (
        "least attained service (time x GPUs) first, durations unknown",
        lambda by: _alone(baselines.las_2d(quantum_s=by.quantum_s), by),
    ),
    "tiresias": (
        "attained service (time x GPUs) in a few queues, durations unknown (Tiresias, NSDI'19)",
        lambda by: _alone(_load("scheduling.tiresias").Tiresias(), by),
    ),
    "qssf": (
        "least predicted service (time x GPUs) first; not preemptive (Helios, SC'21)",
        lambda by: _alone(baselines.qssf(), by),
    ),
    "themis": (
        "finish-time fairness by auctions of leases (Themis, NSDI'20)",
        lambda by: _alone(_load("scheduling.themis").Themis(), by),
    ),
    "edf": (
        "earliest deadline first; preemptive",
        lambda by: _alone(_load("scheduling.deadlines").edf(by.estimates), by),
    ),
    "on-time": (
        "urgent deadlines first, then shortest remaining service; ours",
        lambda by: _alone(_load("scheduling.deadlines").OnTime(by.estimates), by),
    ),
    "joint": (
        "jobs in the order of on-time, servers and trees by free links and slots; ours",
        lambda by: Setup(_load("joint").Joint(by.estimates), ExclusiveSpeed(by.restart_scale), places=True),
    ),
    "muri-s": (
        "groups of jobs whose stages interleave, durations known (Muri, SIGCOMM'22)",
        lambda by: _muri("muri-s", by),
    ),
    "muri-l": ("muri-s with unknown durations", lambda by: _muri("muri-l", by, known=False)),
    "weave-s": (
        "interleaved groups of the highest worth to all waiting jobs, durations known; ours",
        _weave,
    ),
}
"""Description of each policy, and a function that makes a new setup of it, by name."""

DEFAULT = PaperOptions()


def setup(name: str, options: PaperOptions = DEFAULT) -> Setup:
    """Return a new policy of this name with its speed model and interval."""
    return POLICIES[name][1](options)


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a new policy of this name with its speed model and interval."""
    return setup(name, replace(resolve_options(PaperOptions, config), seed=config.seed))


FAMILY = Family(
    "policies as the papers describe them, in one speed model",
    {name: about for name, (about, _) in POLICIES.items()},
    make,
    settings=declared_settings(PaperOptions),
    main=[name for name in POLICIES if name not in ("fifo-backfill", "2d-las")],
)
