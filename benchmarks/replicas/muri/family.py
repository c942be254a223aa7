"""``benchmarks.replicas.muri:POLICY``: the rules of Muri's public simulator, to the digit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.replicas.muri.loop import MuriRun
from benchmarks.replicas.muri.muri import MuriReplica
from benchmarks.replicas.muri.ranked import TiresiasReplica, srsf, srtf
from benchmarks.replicas.muri.speed import SLOTS, AntManSpeed, MuriSpeed
from controller.policies.family import Family, Setting, SimulationConfig, declared_settings, resolve_settings
from controller.policies.scheduling.options import PaperOptions
from controller.policies.scheduling.policy import Policy
from controller.policies.scheduling.sharing.antman import AntMan
from controller.policies.scheduling.weave import Weave
from controller.simulator.engine import PolicyRun

SAME_TIME_S = 1e-4
"""With groups, ends fall together with arrivals that are closer than this."""


def _alone(policy: Policy, *, same_end: float = 1e-9) -> MuriRun:
    return MuriRun(policy, AntManSpeed(), same_end=same_end)


def muri(name: str, *, known: bool, settings: Mapping[str, float]) -> MuriRun:
    """Return Muri, with these of `SETTINGS`."""
    policy = MuriReplica(
        name,
        known=known,
        members=int(settings["members"]),
        blossom=not settings["in_order"],
        worst=bool(settings["worst_order"]),
        unpack=bool(settings["unpack"]),
    )
    return MuriRun(policy, policy.speed(), same_time_s=SAME_TIME_S)


def _weave(settings: Mapping[str, float]) -> MuriRun:
    options = PaperOptions(short=settings["short"], width=int(settings["width"]))
    return MuriRun(Weave(MuriSpeed(), options), MuriSpeed(), same_time_s=SAME_TIME_S)


POLICIES: Mapping[str, tuple[str, Callable[[Mapping[str, float]], MuriRun]]] = {
    "srtf": ("shortest remaining time first", lambda _: _alone(srtf())),
    "srsf": ("shortest remaining service first", lambda _: _alone(srsf())),
    "tiresias": ("GPUs are counted, wherever they are", lambda _: _alone(TiresiasReplica(), same_end=0.0)),
    "antman": ("opportunistic jobs beside guaranteed ones", lambda _: _alone(AntMan())),
    "muri-s": ("durations known", lambda given: muri("muri-s", known=True, settings=given)),
    "muri-l": ("durations unknown", lambda given: muri("muri-l", known=False, settings=given)),
    "weave-s": ("ours by these rules, durations known", _weave),
}
"""Description of each, and a function that makes a fresh policy run."""

SETTINGS = {
    "members": Setting("most jobs in a group (muri)", SLOTS, 1, SLOTS, whole=True),
    "worst_order": Setting("1: muri interleaves as badly as possible", 0, 0, 1, whole=True),
    "in_order": Setting("1: muri groups neighbours in the queue", 0, 0, 1, whole=True),
    "unpack": Setting("0: muri keeps groups that do not pay (--autopack False there)", 1, 0, 1, whole=True),
    **{name: declared_settings(PaperOptions)[name] for name in ("short", "width")},
}


def make(name: str, config: SimulationConfig) -> PolicyRun:
    """Return a fresh policy run."""
    return POLICIES[name][1](resolve_settings(SETTINGS, config))


FAMILY = Family(
    "as Muri's public simulator has them, to the digit",
    {name: about for name, (about, _) in POLICIES.items()},
    make,
    settings=SETTINGS,
    three_stages=True,
)
