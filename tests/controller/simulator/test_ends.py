"""Which job ends next, however often jobs were started anew in between."""

from __future__ import annotations

import random

from controller.policies.scheduling import Group, JobState, Submission
from controller.simulator.engine import ROOM, Ends


def test_what_restarts_have_outdated_neither_comes_out_nor_piles_up() -> None:
    rng = random.Random(3)
    specs = [Submission(f"j{number}", 0.0, 1, iterations=100) for number in range(20)]
    jobs = [JobState(spec, number, 1.0, 0.0) for number, spec in enumerate(specs)]
    ends = Ends()
    for step in range(2_000):
        job = rng.choice(jobs)
        job.launch(float(step), Group((job,), (0,)), rng.uniform(1e3, 1e6), 1.0)
        ends.push(job)
        assert ends.next_s() == min(one.end_s() for one in jobs if one.group is not None)
        assert len(ends) <= 2 * len(jobs) + ROOM
    for expected in sorted(jobs, key=lambda one: (one.end_s(), one.order)):
        assert ends.pop() == [expected]
        expected.finish(2_000.0)
    assert not ends
