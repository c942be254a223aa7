"""Held runs of the daemon: written down before the first effect, removed after the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.core import Place, Run
from controller.switches.layout import TreeAdmission
from ina.launch.plain import record_of

ON_NO_SWITCH = 0
"""The id of jobs that need no switch: each is on one server."""
_TREE = ("root", "parents", "aggregators")

Stage = Literal["preparing", "running", "stopping"]


@dataclass(slots=True)
class HeldRun:
    """A run that holds GPUs: its workers are being started, run, or are being stopped.

    Attributes:
        run: The run as desired when it was started.
        places: The place of each of its jobs, as last sent to its switches.
        stage: Its stage of life.
        over: Its jobs whose workers have ended.
        busy: An effect is in progress; no other begins until its end.
        admissions: The entries that switches should hold for each of its jobs that uses them.
        udp_ports: The UDP ports of each job's servers.
        before: Iterations of each job before the run was started.
    """

    run: Run
    places: Mapping[str, Place]
    stage: Stage = "preparing"
    over: frozenset[str] = frozenset()
    busy: bool = False
    admissions: dict[str, TreeAdmission] = field(default_factory=dict)
    udp_ports: dict[str, tuple[int, ...]] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)

    def of_switches(self) -> dict[str, TreeAdmission]:
        """Return the admissions that switches should hold, by job, of jobs that have not ended."""
        return {
            name: admission
            for name, admission in self.admissions.items()
            if name not in self.over and admission.job != ON_NO_SWITCH
        }


def held_run(found: dict[str, Any]) -> HeldRun:
    """Return the stored run, written by this version or an earlier one."""
    if "busy" not in found:  # version 3, or earlier
        for place in found["places"].values():
            place["tree"] = place["tree"] and dict(zip(_TREE, place["tree"], strict=True))
            regions = place["regions"].items()
            place["regions"] = {switch: {"offset": first, "size": size} for switch, (first, size) in regions}
        found["admissions"] = {
            job: {"beside": switches.pop("", None), "switches": switches}
            for job, switches in found["admissions"].items()
        }
    return record_of(HeldRun, found)


def hosts(servers: Sequence[str]) -> tuple[str, ...]:
    """Return the servers of a job's workers, each once."""
    return tuple(dict.fromkeys(servers))
