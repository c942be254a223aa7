"""All policies by name, in families of one speed model each: figures of two families are not comparable.

A name is ``FAMILY:POLICY``; those of the papers' plain family have no colon. Other names are those of
policies from outside (`controller.simulator.families.outside`), which count as plain. What models need comes
from files (`SimulationConfig`), or else is made up.

To add a family: a module in `controller.simulator.families` with a `Family`, and its line in `FAMILIES`.
Packages that are optional are loaded when one of its policies is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from controller import plugins
from controller.scheduling.errors import BadSpec
from controller.scheduling.model import Submission
from controller.simulator.divided import DividedRun
from controller.simulator.families import outside
from controller.simulator.families.base import Family, Setting, SimulationConfig, resolve_settings
from controller.simulator.policy_run import PolicyRun


class _Families(Mapping[str, Family]):
    """Families by name, imported when asked for: all together take longer than a short simulation."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> Family:
        found: Family = importlib.import_module(self._modules[name]).FAMILY
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules


FAMILIES: Mapping[str, Family] = _Families(
    {
        "": "controller.simulator.families.papers",
        "muri-replica": "controller.simulator.replicas.muri.family",
        "synergy": "controller.simulator.families.synergy",
        "synergy-replica": "controller.simulator.replicas.synergy.family",
        "lucid": "controller.simulator.families.lucid",
        "lucid-replica": "controller.simulator.replicas.lucid.family",
        "sharing": "controller.simulator.families.sharing",
        "types": "controller.simulator.families.types",
        "faults": "controller.simulator.families.faults",
    }
)
"""By what stands before the colon of their policies' names."""


def family(name: str) -> str:
    """Return the family of a policy; "" for a plain one and for one from outside."""
    before, colon, _ = name.partition(":")
    return before if colon and before in FAMILIES else ""


def full_name(kind: str, policy: str) -> str:
    """Return the name of a family's policy."""
    return f"{kind}:{policy}" if kind else policy


def known() -> list[str]:
    """Return the names of all policies."""
    return [full_name(kind, policy) for kind, each in FAMILIES.items() for policy in each.policies]


def make(name: str, config: SimulationConfig) -> PolicyRun:
    """Return a fresh policy run.

    Raises BadSpec for an unknown name, what reading the files raises, and ExtraMissing
    without the packages that a policy needs.
    """
    check_known(name)
    if config.cluster.virtual:
        return _divided(name, config)
    if is_outside(name):
        return outside.make(name, config)
    return FAMILIES[family(name)].make(name.rpartition(":")[2], config)


def _divided(name: str, config: SimulationConfig) -> PolicyRun:
    cluster = config.cluster
    parts = {vc: make(name, replace(config, cluster=cluster.part(vc))) for vc in cluster.virtual}
    first = parts[cluster.virtual[0]]
    return DividedRun(first.policy, first.speed, first.interval_s, parts=parts)


def check_known(name: str) -> None:
    """Raise BadSpec unless a policy is called so, here or outside."""
    if not is_outside(name):
        return
    named_so = plugins.is_external(name) or plugins.is_module(name) or name in plugins.names(outside.GROUP)
    if named_so and name.partition(":")[0] not in FAMILIES:
        outside.find(name)
        return
    raise BadSpec(f"policy {name!r} is unknown; 'ina schedule policies --all' lists them")


def is_outside(name: str) -> bool:
    """Return whether no policy of the families is called so."""
    kind, policy = family(name), name.rpartition(":")[2]
    return full_name(kind, policy) != name or policy not in FAMILIES[kind].policies


def parse_setting(text: str) -> tuple[str, float]:
    """Split ``NAME=VALUE``. Raises BadSpec."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise BadSpec(f"setting {text!r}: want NAME=NUMBER, such as interval_s=600") from None


def check_settings(settings: Iterable[tuple[str, float]], policies: Iterable[str]) -> None:
    """Raise BadSpec for a setting that none of the policies has, or a value that it cannot have."""
    each_has = [_settings(policy) for policy in policies]
    for name, value in settings:
        found = [has[name] for has in each_has if name in has]
        if not found:
            there = sorted({known for has in each_has for known in has})
            raise BadSpec(f"setting {name!r} is unknown here; there are {', '.join(there) or 'none'}")
        for setting in found:
            setting.check(name, value)


def settings_of(policy: str, config: SimulationConfig) -> dict[str, float]:
    """Return the values by name of what can be set of a policy."""
    return resolve_settings(_settings(policy), config)


def _settings(policy: str) -> Mapping[str, Setting]:
    return outside.settings(policy) if is_outside(policy) else FAMILIES[family(policy)].settings


def dress(specs: Sequence[Submission], kind: str, config: SimulationConfig) -> list[Submission]:
    """Return generated jobs with models that the family `kind` knows, drawn evenly by seed."""
    return FAMILIES[kind].dress(specs, config)
