"""User-defined policies: a class of a module or of a file, or of an installed package.

A module or file with a `Family` called ``FAMILY`` provides policies with their own speed model, such as the
replicas of published simulators in ``benchmarks/replicas``.

Otherwise a name is ``package.module:Class``, ``path.py:Class``, or an entry point of the group `GROUP`. The
named callable is called with only the values that ``--set`` gives, and returns a `Policy`, or a `Setup` if it
has its own speed model; else jobs run as fast as in the plain family. Parameters whose defaults are numbers
are its settings.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from controller import plugins
from controller.errors import ControllerError
from controller.policies.families.base import Family, Setting, SimulationConfig, resolve_settings
from controller.policies.scheduling.checks import check
from controller.policies.scheduling.errors import BadDecision, BadSpec
from controller.policies.scheduling.policy import Decision, Policy, View
from controller.policies.scheduling.speed import Interleaved
from controller.policies.setup import Setup

GROUP = "ina.policies"
"""The group of entry points."""
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def family(source: str) -> Family | None:
    """Return the family of a module or file; None if it has none, or is not there (`find` says why)."""
    try:
        found = getattr(plugins.module(source), "FAMILY", None) if plugins.is_source(source) else None
    except BadSpec:
        return None
    return found if isinstance(found, Family) else None


def find(name: str) -> Callable[..., Any]:
    """Return the callable that makes the policy. Raises BadSpec if there is none."""
    found = plugins.load(name, GROUP)
    if not callable(found):
        raise BadSpec(
            f"policy {name!r} is {type(found).__name__}; want a class, or a function that makes one"
        )
    parameters = inspect.signature(found).parameters.values()
    if needed := [each.name for each in parameters if each.default is each.empty and each.kind not in _OPEN]:
        raise BadSpec(
            f"policy {name!r} is not made without {', '.join(needed)}; want a class, or a function that makes"
            " a policy, whose parameters all have defaults"
        )
    return found  # type: ignore[no-any-return]


def settings(name: str) -> Mapping[str, Setting]:
    """Return the settings: the parameters whose defaults are numbers. Raises what `find` raises."""
    found: dict[str, Setting] = {}
    for parameter in inspect.signature(find(name)).parameters.values():
        default = parameter.default
        if isinstance(default, int | float):
            least, whole = (
                (0.0, True) if isinstance(default, bool) else (-float("inf"), isinstance(default, int))
            )
            most = 1.0 if isinstance(default, bool) else float("inf")
            found[parameter.name] = Setting(f"of {name}", float(default), least, most, whole)
    return found


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a fresh policy with its speed model and interval.

    Raises BadSpec for an object that is not a policy, or cannot be called so.
    """
    maker, has = find(name), settings(name)
    chosen = {
        key: int(value) if has[key].whole else value for key, value in resolve_settings(has, config).items()
    }
    try:
        made = maker(**chosen)
    except ControllerError:
        raise
    except BaseException as error:
        if not plugins.is_own_fault(error):
            raise
        raise BadSpec(f"policy {name!r}: {plugins.said(error)}") from error
    run = made if isinstance(made, Setup) else Setup(made, Interleaved())
    if not callable(getattr(run.policy, "decide", None)) or not isinstance(
        getattr(run.policy, "name", 0), str
    ):
        raise BadSpec(
            f"policy {name!r}: want a name and a method decide(view), "
            "as controller.policies.scheduling.Policy has"
        )
    return replace(run, policy=Guarded(run.policy))


class Guarded:
    """A policy whose errors name it, and whose every decision is checked."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self._policy = policy

    def decide(self, view: View) -> Decision:
        """Return the policy's decision. Raises BadDecision for an impossible one."""
        try:
            decision = self._policy.decide(view)
        except ControllerError:
            raise
        except BaseException as error:
            if not plugins.is_own_fault(error):
                raise
            raise BadDecision(f"{self.name}, asked at {view.now_s:g} s: {plugins.said(error)}") from error
        if not isinstance(decision, Decision):
            raise BadDecision(f"{self.name} returns {type(decision).__name__}; want a Decision")
        check(decision, view, self.name)
        return decision
