"""Shortest length of a turn: no job is stopped for its time slice alone before its start has paid off.

Where a start takes as long as a time slice, jobs that take turns would only start. So policies with slices
let running jobs continue until each has worked for as long as its start cost: at least half of the time is
work, whatever a start costs.
"""

from __future__ import annotations

from controller.policies.scheduling.policy import Decision, View


def carry_on(view: View) -> Decision | None:
    """Return the decision that nothing changes until every start has paid off; None if it is time to choose.

    It is time, too, when a job has arrived or ended.
    """
    if view.arrived or view.finished:
        return None
    repaid_s = max((job.repaid_s for group in view.groups for job in group.jobs), default=view.now_s)
    return Decision(list(view.groups), repaid_s) if repaid_s > view.now_s else None
