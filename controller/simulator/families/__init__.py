"""All policies by name, in families of one speed model each: figures of two families are not comparable.

A name is ``FAMILY:POLICY``; those of the papers' plain family have no colon. What models need comes from
files (`Background`), or else is made up.

To add a family: a module here with a `Family`, and its line in `FAMILIES`. Packages that are optional are
loaded when one of its policies is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.scheduling.errors import BadSpec
from controller.scheduling.model import JobSpec
from controller.simulator.families import lucid, lucid_coded, sharing, synergy, synergy_coded
from controller.simulator.families.base import Background, Family
from controller.simulator.setups import SETUPS, Setup, setup

FAMILIES: Mapping[str, Family] = {
    "": Family(
        "as the papers have them, in one speed model",
        {name: "" for name in SETUPS if ":" not in name},
        lambda name, background: setup(name),
    ),
    "coded": Family(
        "as Muri's public simulator has them, to the digit",
        {name.removeprefix("coded:"): "" for name in SETUPS if name.startswith("coded:")},
        lambda name, background: setup(f"coded:{name}"),
    ),
    "synergy": synergy.FAMILY,
    "synergy-coded": synergy_coded.FAMILY,
    "lucid": lucid.FAMILY,
    "lucid-coded": lucid_coded.FAMILY,
    "sharing": sharing.FAMILY,
}
"""By what stands before the colon of their policies' names."""

__all__ = ["FAMILIES", "Background", "Family", "dress", "family", "full_name", "known", "make"]


def family(name: str) -> str:
    """Return what stands before the colon of a policy's name; "" if there is none."""
    before, colon, _ = name.partition(":")
    return before if colon else ""


def full_name(kind: str, policy: str) -> str:
    """Return the name of a family's policy."""
    return f"{kind}:{policy}" if kind else policy


def known() -> list[str]:
    """Return the names of all policies."""
    return [full_name(kind, policy) for kind, each in FAMILIES.items() for policy in each.policies]


def make(name: str, background: Background) -> Setup:
    """Return a fresh setup.

    Raises BadSpec for an unknown name, what reading the files raises, and ExtraMissing
    without the packages that a policy needs.
    """
    if name not in known():
        raise BadSpec(f"policy {name!r} is unknown; 'ina schedule policies' lists them")
    return FAMILIES[family(name)].make(name.rpartition(":")[2], background)


def dress(specs: Sequence[JobSpec], kind: str, background: Background) -> list[JobSpec]:
    """Return generated jobs with models that the family `kind` knows, drawn evenly by seed."""
    return FAMILIES[kind].dress(specs, background)
