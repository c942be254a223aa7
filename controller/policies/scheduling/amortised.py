"""Worth of a draft per second, less what its starts and stops cost: for jobs whose ends nobody can foresee.

A group that starts does nothing until all of its members have started, and is expected to stay as it is until
its first member ends. Over that life of T seconds it is worth T / (T + start) of what it is worth while it
runs. A job that is stopped has to start again later: its worth for so long is lost once, and is spread over
the mean life of the groups for which it was stopped. Groups that go on cost nothing. Ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from controller.policies.grouping.worth import Weighed
from controller.policies.scheduling.outlook import Positions


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is believed of a job: what to group (its worth per second alone), how long it runs on, its start.

    `left_s` are seconds alone.
    """

    item: Weighed
    left_s: float
    restart_s: float


def net_worth(
    draft: Sequence[Positions],
    kept: Set[Positions],
    jobs: Sequence[Prospect],
    round_s: Callable[[Positions], float],
) -> float:
    """Return the draft's worth per second after starts and stops. O(members).

    Args:
        draft: Groups that are to run, as positions in `jobs`.
        kept: Groups that run now; those of them in the draft go on.
        jobs: All jobs that the draft or `kept` names.
        round_s: Returns the length in seconds of a round of these kinds, which are in ascending order.

    >>> from controller.policies.grouping.worth import Item
    >>> jobs = [Prospect(Item(0, 1, 1.0, 2.0), 30.0, 10.0), Prospect(Item(0, 1, 1.0, 1.0), 100.0, 10.0)]
    >>> net_worth([(0,)], {(1,)}, jobs, lambda kinds: 1.0)  # 2 for 30 of 40 s, less 10 s of the other in 30
    1.1666666666666667
    """
    total, lives = 0.0, []
    for group in draft:
        length_s = round_s(tuple(sorted(jobs[member].item.kind for member in group)))
        worth = sum(jobs[member].item.weight * jobs[member].item.alone_s for member in group) / length_s
        if group in kept:
            total += worth
            continue
        life_s = min(jobs[member].left_s / jobs[member].item.alone_s for member in group) * length_s
        total += worth * life_s / (life_s + sum(jobs[member].restart_s for member in group))
        lives.append(life_s)
    runs = {member for group in draft for member in group}
    stopped = [jobs[member] for group in kept for member in group if member not in runs]
    if stopped and lives:
        total -= sum(job.item.weight * job.restart_s for job in stopped) * len(lives) / sum(lives)
    return total
