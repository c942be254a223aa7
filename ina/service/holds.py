"""Held runs: the runs that may have workers, or entries on switches and fallback servers.

A held run is stored before the first effect on it, and removed after the last one, so that no run is
forgotten if the daemon dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.core import Place, Run
from controller.switches.layout import TreeAdmission
from ina.launch.plain import record_of

ON_NO_SWITCH = 0
"""The job number in the admissions of jobs that need no switch, because their workers are on one server."""
_TREE = ("root", "parents", "aggregators")

Stage = Literal["preparing", "running", "stopping"]


@dataclass(slots=True)
class HeldRun:
    """A run that holds GPUs: its workers are being started, are running, or are being stopped.

    Attributes:
        run: The run, as the core desired it when it was started.
        places: By job, the place of the job (servers, tree, slots), as last sent to the switches.
        stage: Whether the run is being prepared, runs, or is being stopped.
        over: The jobs whose workers have ended.
        busy: Whether an effect on the run is in progress. No other effect on the run begins before its end.
        admissions: By job, the entries that the job's switches should have.
        udp_ports: By job, the UDP port on each of the job's servers.
        before: By job, the number of iterations that the job had completed before this run was started.
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
        """Return the admissions that switches should have, by job.

        Jobs that have ended, and jobs that need no switch, are missing.
        """
        return {
            name: admission
            for name, admission in self.admissions.items()
            if name not in self.over and admission.job != ON_NO_SWITCH
        }


def held_run(found: dict[str, Any]) -> HeldRun:
    """Convert the stored form of a held run, written by this or an earlier version, to a `HeldRun`."""
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
    """Return each server in a list of workers' servers once, in the order of first appearance."""
    return tuple(dict.fromkeys(servers))
