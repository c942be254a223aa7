"""Control switches that aggregate: admit jobs, assign them slots, and set up ordinary forwarding."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.errors import (
        BadJob,
        ControllerError,
        NoProgram,
        NoSuchJob,
        OtherProgram,
        ProgramMismatch,
    )
    from controller.p4runtime_shim.client import Tls
    from controller.p4runtime_shim.target import connect
    from controller.switches.fleet import Fleet, ReconcileReport
    from controller.switches.layout import Branch, Deployment, Downlink, TreeAdmission
    from controller.switches.model import (
        Admission,
        Member,
        Part,
        RegionChange,
        Registration,
        SwitchInfo,
        TreePosition,
        Uplink,
    )
    from controller.switches.planning import Identity
    from controller.switches.programs import ProgramBundle, source_of
    from controller.switches.reconcile import Action, Reconciliation, SwitchState, WaitingStep, reconcile
    from controller.switches.session import SwitchSession
    from controller.vocabulary import Mode, Region

__all__ = [
    "Action",
    "Admission",
    "BadJob",
    "Branch",
    "ControllerError",
    "Deployment",
    "Downlink",
    "Fleet",
    "Identity",
    "Member",
    "Mode",
    "NoProgram",
    "NoSuchJob",
    "OtherProgram",
    "Part",
    "ProgramBundle",
    "ProgramMismatch",
    "ReconcileReport",
    "Reconciliation",
    "Region",
    "RegionChange",
    "Registration",
    "SwitchInfo",
    "SwitchSession",
    "SwitchState",
    "Tls",
    "TreeAdmission",
    "TreePosition",
    "Uplink",
    "WaitingStep",
    "connect",
    "reconcile",
    "source_of",
]

_MODULES = (
    "errors",
    "vocabulary",
    "switches.model",
    "switches.layout",
    "switches.programs",
    "switches.reconcile",
    "switches.session",
    "switches.fleet",
    "p4runtime_shim.client",
    "p4runtime_shim.target",
)
"""Modules in which `__getattr__` looks for a public name. Modules that import quickly come first; the modules
that need gRPC, which few commands use, come last."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: importing all names takes longer than many commands run."""
    if name in __all__:
        for module in _MODULES:
            found = getattr(importlib.import_module(f"controller.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
