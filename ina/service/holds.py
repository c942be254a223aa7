"""What the daemon holds of a run: written down before the first effect, forgotten after the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.core import Place, Run
from controller.switches.layout import TreeAdmission
from ina.launch import plain

ON_NO_SWITCH = 0
"""The id of jobs that no switch has to know of: each is on one server."""


Stage = Literal["preparing", "running", "stopping"]


@dataclass(slots=True)
class HeldRun:
    """A run that holds GPUs: its workers are being started, run, or are being stopped.

    Attributes:
        run: What was to run when it was started.
        places: Where each of its jobs was put, as its switches were told last.
        stage: Where it is in its life.
        over: Those of its jobs whose workers have ended.
        busy: Something is being done to it; nothing else is done until that is over.
        admissions: What the switches should hold of each of its jobs that uses them.
        udp_ports: Where each job's servers take packets.
        before: Iterations that each job had done when the run was started.
    """

    run: Run
    places: Mapping[str, Place]
    stage: Stage = "preparing"
    over: frozenset[str] = frozenset()
    busy: bool = False
    admissions: dict[str, TreeAdmission] = field(default_factory=dict)
    udp_ports: dict[str, tuple[int, ...]] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return it as the store keeps it."""
        return {
            "run": plain.of_run(self.run),
            "places": {name: plain.of_place(place) for name, place in self.places.items()},
            "stage": self.stage,
            "over": sorted(self.over),
            "admissions": {name: plain.of_admission(each) for name, each in self.admissions.items()},
            "udp_ports": {name: list(ports) for name, ports in self.udp_ports.items()},
            "before": self.before,
        }

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> HeldRun:
        """Return the run that `plain` gave this for."""
        return cls(
            plain.run_of(found["run"]),
            {name: plain.place_of(place) for name, place in found["places"].items()},
            found["stage"],
            frozenset(found["over"]),
            admissions={name: plain.admission_of(each) for name, each in found["admissions"].items()},
            udp_ports={name: tuple(ports) for name, ports in found["udp_ports"].items()},
            before=found["before"],
        )

    def of_switches(self) -> dict[str, TreeAdmission]:
        """Return the admissions that switches should hold, by job: of those that have not ended."""
        return {
            name: admission
            for name, admission in self.admissions.items()
            if name not in self.over and admission.job != ON_NO_SWITCH
        }


def hosts(servers: Sequence[str]) -> tuple[str, ...]:
    """Return the servers of a job's workers, each once."""
    return tuple(dict.fromkeys(servers))
