"""The registry of all policies, by name.

Policies of placement, memory and routing are functions (`PLACEMENTS`, `MEMORIES`, `ROUTINGS`); `find` also
finds policies of a file, ``path.py:Name``, and of an installed package.

Scheduling policies are grouped in families. All policies of a family have one speed model, so results of two
families are not comparable. A policy's name is ``FAMILY:POLICY``; in the plain family, which has the papers'
policies, names have no colon. A family is one of `FAMILIES`, or a user's module or file with a `Family`
called ``FAMILY``: ``package.module:POLICY``, ``path.py:POLICY``. The replicas of published simulators are
such families. The speed models' data comes from files (`SimulationConfig`), or is synthetic.

Other names are single user-defined policies, which belong to the plain family: ``package.module:Class``,
``path.py:Class``, or an entry point of the group `GROUP`. The named class or function is called with only the
values that ``--set`` gives. It returns a `Policy`, or a `Setup` if the policy has its own speed model. Its
parameters with numeric defaults are the policy's settings.

To add a family, write a module with a `Family`, and add a line to `FAMILIES`. Optional packages are imported
when one of the family's policies is made.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from controller import plugins
from controller.policies.family import Family, Setting, Setup, SimulationConfig, resolve_settings
from controller.policies.scheduling.checks import check
from controller.policies.scheduling.errors import BadDecision, BadSpec
from controller.policies.scheduling.policy import Decision, Policy, Submission, View
from controller.policies.scheduling.speed import InterleavedSpeed
from controller.policies.settings import SCHEDULER as SCHEDULER
from controller.policies.settings import AllocationPolicies, AllocationSettings
from controller.vocabulary.documents import hint

if TYPE_CHECKING:
    from controller.policies.memory.policy import Policy as Memory
    from controller.policies.placement.policy import PlacementPolicy
    from controller.policies.routing.policy import Policy as Routing

GROUP = "ina.policies"
"""The group of entry points of scheduling policies."""

Found = TypeVar("Found")


class _ByName(Mapping[str, Found]):
    """Objects by name; the module of an object is imported on first use.

    Importing all modules takes longer than a short simulation.

    Args:
        places: The module and the attribute of each object, by the object's name: ``module:attribute``. The
            module's name is relative to `controller.policies`.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Found:
        module, _, attribute = self._places[name].partition(":")
        return getattr(importlib.import_module(f"controller.policies.{module}"), attribute)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places


class _Placements(_ByName[Any]):
    """The placement policies by name, imported on first use."""

    def __getitem__(self, name: str) -> PlacementPolicy:
        from controller.policies.placement.policy import Choose, PlacementPolicy

        choose: Choose = super().__getitem__(name)
        return PlacementPolicy(choose, netpack=name == "netpack")


PLACEMENTS: Mapping[str, PlacementPolicy] = _Placements(
    {
        "netpack": "placement.netpack:netpack",
        "random": "placement.baselines:at_random",
        "gpu-balance": "placement.baselines:gpu_balance",
        "least-fragmentation": "placement.baselines:least_fragmentation",
        "locality": "placement.baselines:locality_first",
        "locality-fast-links": "placement.baselines:locality_on_fast_links",
        "optimus": "placement.baselines:optimus",
    }
)
MEMORIES: Mapping[str, Memory] = _ByName(
    {
        "deadline": "memory.deadline:deadline",
        "deadline-lazy": "memory.deadline:deadline_lazy",
        "static": "memory.policy:static",
        "shared": "memory.policy:common",
        "preemptive": "memory.deadline:preemptive",
        "earliest": "memory.deadline:earliest",
    }
)
ROUTINGS: Mapping[str, Routing] = _ByName(
    {
        "grid": "routing.grid:grid",
        "tor-only": "routing.policy:tor_only",
        "ecmp": "routing.policy:ecmp",
        "ecmp-everywhere": "routing.policy:ecmp_everywhere",
        "shortest-path": "routing.policy:shortest_path",
    }
)
_KNOWN: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "placement": (PLACEMENTS, "ina.placement"),
    "memory": (MEMORIES, "ina.memory"),
    "routing": (ROUTINGS, "ina.routing"),
}
"""By kind of policy, the built-in policies, and the group of entry points for policies in packages."""


def find(kind: str, name: str) -> Any:
    """Return the policy of this kind and name: built in, or of a package or file. Raises BadSpec."""
    known, group = _KNOWN[kind]
    if name in known:
        return known[name]
    installed = plugins.names(group)
    if not plugins.is_external(name) and name not in installed:
        advice = hint(name, [*known, *installed, *([SCHEDULER] if kind == "placement" else [])])
        raise BadSpec(f"{kind} {name!r}: {advice}; path.py:Name names a function in a file")
    if kind != "placement":
        return plugins.function(name, group)
    from controller.policies.placement.policy import PlacementPolicy

    found = plugins.load(name, group)
    return found if isinstance(found, PlacementPolicy) else PlacementPolicy(plugins.function(name, group))


def policies_of(settings: AllocationSettings) -> AllocationPolicies:
    """Return the policies that these settings name. Raises BadSpec."""
    placing = None if settings.placement == SCHEDULER else find("placement", settings.placement)
    route = None if settings.routing == "shortest-path" else find("routing", settings.routing)
    return AllocationPolicies(placing, find("memory", settings.memory), route)


FAMILIES: Mapping[str, Family] = _ByName(
    {
        "": "scheduling.papers:FAMILY",
        "synergy": "scheduling.synergy.family:FAMILY",
        "lucid": "scheduling.lucid.family:FAMILY",
        "sharing": "scheduling.sharing.family:FAMILY",
    }
)
"""The families of policies, by family name: the part of a policy's name before the colon."""


def family(name: str) -> str:
    """Return the name of a policy's family; "" for the plain family and single user-defined policies."""
    before, colon, _ = name.rpartition(":")
    return before if colon and (before in FAMILIES or _family_of(before)) else ""


def find_family(kind: str) -> Family:
    """Return the family named `kind`: one of `FAMILIES`, or a user-defined one. Raises BadSpec for others."""
    found = FAMILIES[kind] if kind in FAMILIES else _family_of(kind)
    if found is None:
        raise BadSpec(f"family {kind!r} is unknown; known are {', '.join(filter(None, FAMILIES))}")
    return found


def full_name(kind: str, policy: str) -> str:
    """Return a policy's full name: ``KIND:POLICY``, or ``POLICY`` for the family without a name."""
    return f"{kind}:{policy}" if kind else policy


def known() -> list[str]:
    """Return the names of all policies."""
    return [full_name(kind, policy) for kind, each in FAMILIES.items() for policy in each.policies]


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a new policy of this name with its speed model and interval.

    Raises BadSpec for an unknown name, the errors of reading files, and ExtraMissing without the packages
    that a policy needs.
    """
    check_known(name)
    if is_user_defined(name):
        return _make(name, config)
    return find_family(family(name)).make(name.rpartition(":")[2], config)


def check_known(name: str) -> None:
    """Raise BadSpec unless there is a policy of this name, built in or user-defined."""
    if not is_user_defined(name):
        return
    if kind := family(name):
        policies = ", ".join(find_family(kind).policies)
        raise BadSpec(f"family {kind!r} has no policy {name.rpartition(':')[2]!r}; it has {policies}")
    loadable = plugins.is_external(name) or plugins.is_module(name) or name in plugins.names(GROUP)
    if loadable and name.partition(":")[0] not in FAMILIES:
        _maker(name)
        return
    raise BadSpec(
        f"policy {name!r} is unknown; 'ina schedule policies --all' lists the known ones;"
        " a policy of your own is given as path.py:NAME"
    )


def is_user_defined(name: str) -> bool:
    """Return whether the policy is user-defined: True if no family has a policy of this name."""
    kind, policy = family(name), name.rpartition(":")[2]
    return full_name(kind, policy) != name or policy not in find_family(kind).policies


def parse_setting(text: str) -> tuple[str, float]:
    """Return name and value of ``NAME=VALUE``. Raises BadSpec if the value is not a number."""
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise BadSpec(f"setting {text!r}: want NAME=NUMBER, such as interval_s=600") from None


def check_settings(settings: Iterable[tuple[str, float]], policies: Iterable[str]) -> None:
    """Raise BadSpec for a setting that none of the policies has, or an invalid value."""
    policy_settings = [_settings(policy) for policy in policies]
    for name, value in settings:
        found = [known[name] for known in policy_settings if name in known]
        if not found:
            names = sorted({key for known in policy_settings for key in known})
            raise BadSpec(f"setting {name!r} is unknown here; known are {', '.join(names) or 'none'}")
        for setting in found:
            setting.check(name, value)


def settings_of(policy: str, config: SimulationConfig) -> dict[str, float]:
    """Return the values of a policy's settings, by name."""
    return resolve_settings(_settings(policy), config)


def _settings(policy: str) -> Mapping[str, Setting]:
    return _parameters(policy) if is_user_defined(policy) else find_family(family(policy)).settings


def complete_jobs(specs: Sequence[Submission], kind: str, config: SimulationConfig) -> list[Submission]:
    """Give generated jobs the properties that the family `kind` needs, drawn by `config.seed`."""
    return find_family(kind).complete_jobs(specs, config)


_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _family_of(source: str) -> Family | None:
    """Return the attribute `FAMILY` of a module or file; None if there is none or the import fails."""
    try:
        found = getattr(plugins.module(source), "FAMILY", None) if plugins.is_source(source) else None
    except BadSpec:
        return None
    return found if isinstance(found, Family) else None


def _maker(name: str) -> Callable[..., Any]:
    """Return the callable that makes the policy. Raises BadSpec if there is none."""
    found = plugins.load(name, GROUP)
    if not callable(found):
        raise BadSpec(
            f"policy {name!r} is {type(found).__name__}; want a class, or a function that makes a policy"
        )
    parameters = inspect.signature(found).parameters.values()
    if needed := [each.name for each in parameters if each.default is each.empty and each.kind not in _OPEN]:
        raise BadSpec(
            f"policy {name!r} needs arguments: {', '.join(needed)}; want a class, or a function that makes"
            " a policy, whose parameters all have defaults"
        )
    return found  # type: ignore[no-any-return]


def _parameters(name: str) -> Mapping[str, Setting]:
    """Return a user-defined policy's settings: the parameters with numeric defaults. Raises BadSpec."""
    found: dict[str, Setting] = {}
    for parameter in inspect.signature(_maker(name)).parameters.values():
        default = parameter.default
        if isinstance(default, int | float):
            least, whole = (
                (0.0, True) if isinstance(default, bool) else (-float("inf"), isinstance(default, int))
            )
            most = 1.0 if isinstance(default, bool) else float("inf")
            found[parameter.name] = Setting(f"of {name}", float(default), least, most, whole)
    return found


def _make(name: str, config: SimulationConfig) -> Setup:
    """Return a new user-defined policy with its speed model and interval.

    Raises BadSpec for an object that is not a policy, and for a callable that fails.
    """
    maker, own = _maker(name), _parameters(name)
    chosen = {
        key: int(value) if own[key].whole else value for key, value in resolve_settings(own, config).items()
    }
    with plugins.errors_named(f"policy {name!r}"):
        made = maker(**chosen)
    run = made if isinstance(made, Setup) else Setup(made, InterleavedSpeed())
    if not callable(getattr(run.policy, "decide", None)) or not isinstance(
        getattr(run.policy, "name", 0), str
    ):
        raise BadSpec(
            f"policy {name!r}: want a name and a method decide(view), "
            "as controller.policies.scheduling.Policy has"
        )
    return replace(run, policy=CheckedPolicy(run.policy))


class CheckedPolicy:
    """Wrapper of a policy that checks every decision of the policy; errors name the policy."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self._policy = policy

    def decide(self, view: View) -> Decision:
        """Return the policy's decision. Raises BadDecision for an impossible one."""
        with plugins.errors_named(f"{self.name} fails in the decision at {view.now_s:g} s", BadDecision):
            decision = self._policy.decide(view)
        if not isinstance(decision, Decision):
            raise BadDecision(f"{self.name} returns {type(decision).__name__}; want a Decision")
        check(decision, view, self.name)
        return decision
