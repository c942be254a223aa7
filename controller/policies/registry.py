"""All policies by name, in families of one speed model each: figures of two families are not comparable.

A name is ``FAMILY:POLICY``; those of the papers' plain family have no colon. A family is one of `FAMILIES`,
or a user's module or file with a `Family` called ``FAMILY``: ``package.module:POLICY``, ``path.py:POLICY``.
Other names are single user-defined policies (`controller.policies.families.outside`), which count as plain.
The models' data comes from files (`SimulationConfig`), or is synthetic.

To add a family, write a module in `controller.policies.families` with a `Family`, and add a line to
`FAMILIES`. Optional packages are imported when one of its policies is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from controller import plugins
from controller.policies.families import outside
from controller.policies.families.base import Family, Setting, SimulationConfig, resolve_settings
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.model import Submission
from controller.policies.setup import Setup


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
        "": "controller.policies.families.papers",
        "synergy": "controller.policies.families.synergy",
        "lucid": "controller.policies.families.lucid",
        "sharing": "controller.policies.families.sharing",
        "types": "controller.policies.families.types",
        "faults": "controller.policies.families.faults",
    }
)
"""By what stands before the colon of their policies' names."""


def family(name: str) -> str:
    """Return the family of a policy; "" for a plain one and for a user-defined one without a family."""
    before, colon, _ = name.rpartition(":")
    return before if colon and (before in FAMILIES or outside.family(before)) else ""


def find_family(kind: str) -> Family:
    """Return the family of this name, one of `FAMILIES` or user-defined. Raises BadSpec if there is none."""
    found = FAMILIES[kind] if kind in FAMILIES else outside.family(kind)
    if found is None:
        raise BadSpec(f"family {kind!r} is unknown; known are {', '.join(filter(None, FAMILIES))}")
    return found


def full_name(kind: str, policy: str) -> str:
    """Return the name of a family's policy."""
    return f"{kind}:{policy}" if kind else policy


def known() -> list[str]:
    """Return the names of all policies."""
    return [full_name(kind, policy) for kind, each in FAMILIES.items() for policy in each.policies]


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a fresh policy with its speed model and interval.

    Raises BadSpec for an unknown name, the errors of reading files, and ExtraMissing without the packages
    that a policy needs.
    """
    check_known(name)
    if is_outside(name):
        return outside.make(name, config)
    return find_family(family(name)).make(name.rpartition(":")[2], config)


def check_known(name: str) -> None:
    """Raise BadSpec unless there is a policy of this name, built in or user-defined."""
    if not is_outside(name):
        return
    if kind := family(name):
        policies = ", ".join(find_family(kind).policies)
        raise BadSpec(f"family {kind!r} has no policy {name.rpartition(':')[2]!r}; it has {policies}")
    named_so = plugins.is_external(name) or plugins.is_module(name) or name in plugins.names(outside.GROUP)
    if named_so and name.partition(":")[0] not in FAMILIES:
        outside.find(name)
        return
    raise BadSpec(
        f"policy {name!r} is unknown; 'ina schedule policies --all' lists them; path.py:NAME is your own"
    )


def is_outside(name: str) -> bool:
    """Return whether the name is in no family: a user-defined policy's."""
    kind, policy = family(name), name.rpartition(":")[2]
    return full_name(kind, policy) != name or policy not in find_family(kind).policies


def parse_setting(text: str) -> tuple[str, float]:
    """Split ``NAME=VALUE``. Raises BadSpec."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise BadSpec(f"setting {text!r}: want NAME=NUMBER, such as interval_s=600") from None


def check_settings(settings: Iterable[tuple[str, float]], policies: Iterable[str]) -> None:
    """Raise BadSpec for a setting that none of the policies has, or an invalid value."""
    each_has = [_settings(policy) for policy in policies]
    for name, value in settings:
        found = [has[name] for has in each_has if name in has]
        if not found:
            there = sorted({known for has in each_has for known in has})
            raise BadSpec(f"setting {name!r} is unknown here; there are {', '.join(there) or 'none'}")
        for setting in found:
            setting.check(name, value)


def settings_of(policy: str, config: SimulationConfig) -> dict[str, float]:
    """Return the values of a policy's settings, by name."""
    return resolve_settings(_settings(policy), config)


def _settings(policy: str) -> Mapping[str, Setting]:
    return outside.settings(policy) if is_outside(policy) else find_family(family(policy)).settings


def dress(specs: Sequence[Submission], kind: str, config: SimulationConfig) -> list[Submission]:
    """Return generated jobs with models that the family `kind` knows, drawn evenly by seed."""
    return find_family(kind).dress(specs, config)
