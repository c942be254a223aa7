"""Shortest jobs first, without preemption: ``ina schedule simulate --policy shortest.py:Shortest,srtf``."""

from controller.policies.scheduling import Decision, Group, View
from controller.policies.scheduling.placement import FreeGpus


class Shortest:
    """Shortest job first, but after jobs that have waited long."""

    name = "shortest"

    def __init__(self, patience_s: float = 86400.0) -> None:
        self.patience_s = patience_s  # --set patience_s=3600: jobs that have waited this long go first

    def decide(self, view: View) -> Decision:
        """Return the running groups, and the shortest jobs that fit beside them."""
        slots, groups = FreeGpus(view.cluster), list(view.groups)  # what runs goes on
        for group in groups:
            slots.reserve(group.gpus)
        ranked = []
        for job in (job for job in view.jobs.values() if job.group is None):
            patient = job.waiting_s(view.now_s) < self.patience_s
            ranked.append((patient, job.remaining_s(view.now_s), job.order, job))
        for patient, left_s, _, job in sorted(ranked):
            if gpus := slots.allocate(job.spec.gpus):
                why = f"{left_s:.0f} s, the shortest that fits" if patient else "has waited long enough"
                groups.append(Group((job,), gpus, reason=why))
        return Decision(groups)
