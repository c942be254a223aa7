"""What the daemon holds of a run: written down before the first effect, forgotten after the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.switches.layout import TreeAdmission
from ina.service import plain
from ina.service.steps import Held

ON_NO_SWITCH = 0
"""The id of jobs that no switch has to know of: each is on one server."""


@dataclass(slots=True)
class Hold:
    """What the daemon holds of a run.

    Attributes:
        held: The run, its places, and where it is in its life.
        admissions: What the switches should hold of each of its jobs that uses them.
        udp_ports: Where each job's servers take packets.
        before: Iterations that each job had done when the run was started.
    """

    held: Held
    admissions: dict[str, TreeAdmission] = field(default_factory=dict)
    udp_ports: dict[str, tuple[int, ...]] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return it as the store keeps it."""
        held = self.held
        return {
            "run": plain.of_run(held.run),
            "places": {name: plain.of_place(place) for name, place in held.places.items()},
            "stage": held.stage,
            "over": sorted(held.over),
            "admissions": {name: plain.of_admission(each) for name, each in self.admissions.items()},
            "udp_ports": {name: list(ports) for name, ports in self.udp_ports.items()},
            "before": self.before,
        }

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Hold:
        """Return the hold that `plain` gave this for."""
        places = {name: plain.place_of(place) for name, place in found["places"].items()}
        held = Held(plain.run_of(found["run"]), places, found["stage"], frozenset(found["over"]))
        return cls(
            held,
            {name: plain.admission_of(each) for name, each in found["admissions"].items()},
            {name: tuple(ports) for name, ports in found["udp_ports"].items()},
            found["before"],
        )

    def of_switches(self) -> dict[str, TreeAdmission]:
        """Return the admissions that switches should hold, by job: of those that have not ended."""
        return {
            name: admission
            for name, admission in self.admissions.items()
            if name not in self.held.over and admission.job != ON_NO_SWITCH
        }


def hosts(servers: Sequence[str]) -> tuple[str, ...]:
    """Return the servers of a job's workers, each once."""
    return tuple(dict.fromkeys(servers))
