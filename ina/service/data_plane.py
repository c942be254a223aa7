"""The switches as the daemon uses them, whatever they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from controller.core import Place
from controller.p4runtime_shim.ports import Told
from controller.switches.fleet import Report
from controller.switches.layout import TreeAdmission
from controller.switches.model import Registration, SwitchInfo
from controller.vocabulary import Job
from ina.service.records import Audit
from ina.service.wiring import Wiring

_Key = TypeVar("_Key")


class DataPlane(Protocol):
    """The switches as the daemon uses them. Everything but the properties and `resized` blocks."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """Where each switch's P4Runtime service is."""

    @property
    def offers(self) -> SwitchInfo:
        """What the program offers to jobs."""

    @property
    def paced(self) -> bool:
        """Whether switches hold so few packets at a port that workers have to pace theirs."""

    def admit(
        self, job: Job, place: Place, udp_ports: Sequence[int], registration: Registration, wiring: Wiring
    ) -> TreeAdmission:
        """Admit a job to the switches of its tree, if it has one.

        Args:
            job: The job.
            place: Its servers, tree and slots.
            udp_ports: UDP port of each server.
            registration: What the switches keep of it for people.
            wiring: The cluster.

        Raises ControllerError.
        """

    def resized(self, job: str, admission: TreeAdmission, place: Place) -> TreeAdmission:
        """Return a job as its switches should hold it at this place; `reconcile` has it move there."""

    def remove(self, admission: TreeAdmission) -> None:
        """Take a job off its switches; off those that fail only `reconcile` can. Raises ControllerError."""

    def look(self, silent: Collection[str]) -> Mapping[str, Told]:
        """Ask the switches, but the `silent`, what they tell of themselves; return it by switch."""

    def at_rest(
        self, admissions: Collection[TreeAdmission], wiring: Wiring, told: Mapping[str, Told]
    ) -> bool:
        """Return whether `reconcile` would find nothing to do, as far as can be told cheaply."""

    def reconcile(
        self, admissions: Collection[TreeAdmission], wiring: Wiring, told: Mapping[str, Told]
    ) -> Report:
        """Have the switches hold these jobs, and those that have left the cluster none.

        `told` is what `look` has just returned. Raises ControllerError.
        """

    def links(self, wiring: Wiring, told: Mapping[str, Told]) -> dict[tuple[str, str], str]:
        """Return, of the links that a switch tells of, why they are down; "": they are up."""

    def audit(self, admissions: Mapping[str, TreeAdmission], leaving: Collection[int], now_s: float) -> Audit:
        """Compare what switches should hold, by job name, with what they do; write nothing."""

    def counters(
        self, jobs: Mapping[_Key, TreeAdmission], outcomes: Collection[str]
    ) -> dict[_Key, dict[str, int]]:
        """Return the packets of jobs with these outcomes, over all their switches."""
