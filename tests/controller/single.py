"""What a fleet does, on a single switch: jobs come, move and go by `Fleet`'s one way to write."""

from __future__ import annotations

from collections.abc import Sequence

from controller import (
    Admission,
    Branch,
    Deployment,
    Fleet,
    Member,
    Part,
    Region,
    Registration,
    SwitchSession,
    TreeAdmission,
)
from controller.switches.planning import Identity


def members(first_port: int, ranks: int = 2) -> tuple[Member, ...]:
    """Return ranks at ports that follow each other."""
    return tuple(
        Member(rank, first_port + rank, f"02:00:00:00:00:{rank:02x}", f"10.0.0.{rank + 1}", 9000 + rank)
        for rank in range(ranks)
    )


def admit(
    controller: SwitchSession,
    part: Part,
    *,
    ports: Sequence[int] = (),
    identity: Identity | None = None,
    registration: Registration | None = None,
) -> Admission:
    """Admit a job whose tree is this switch."""
    deployment = Deployment(
        Branch("s", part.members, region=part.region),
        part.slots,
        mode=part.mode,
        preempt=part.preempt,
        ageing=part.ageing,
        window=part.window,
        max_age_us=part.max_age_us,
        fallback=part.fallback,
        shared_ports=part.shared_ports,
    )
    fleet = Fleet({"s": controller})
    return fleet.admit(deployment, ports={"s": ports}, identity=identity, registration=registration).switches[
        "s"
    ]


def remove(controller: SwitchSession, job: Admission) -> None:
    """Remove a job from the switch."""
    Fleet({"s": controller}).remove(TreeAdmission({"s": job}))


def move(controller: SwitchSession, job: Admission, region: Region) -> Admission:
    """Begin a job's move to other slots, or end one that is over; return the job as it stands then."""
    wanted = TreeAdmission({"s": job}).at({"s": region})
    Fleet({"s": controller}).reconcile([wanted], may_remove=lambda job: False)
    return controller.jobs()[job.job]


def sweep(controller: SwitchSession) -> list[Admission]:
    """Remove, and return, the jobs of the switch whose leases have run out."""
    return Fleet({"s": controller}).sweep()["s"]
