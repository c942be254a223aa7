"""The best placement of one job by exhaustive search: an oracle for small cases.

Complexity: O(ways to distribute the workers over the servers · events); refuses more than `MOST` ways.

>>> import random
>>> from controller.vocabulary import fabrics
>>> job = Job(name="a", workers=2, layers_bytes=(1000,), compute_s=0.1)
>>> exact(Question(fabrics.star(2, fabrics.Parts(gpus=2)), (), random.Random(0)), job)
['h1', 'h1']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from controller.errors import BadSpec
from controller.policies.placement.flows import steady_state
from controller.policies.placement.policy import Question, settle
from controller.vocabulary import Job

MOST = 20_000


def exact(question: Question, job: Job) -> list[str] | None:
    """Return the placement with which most GPUs compute; None if there is no room.

    Raises BadSpec if there are too many placements to try.
    """
    room = question.room(job)
    if _count(room.values(), job.workers) > MOST:
        raise BadSpec(f"job {job.name!r}: more than {MOST} placements; --policy exact is for small cases")
    best: tuple[float, list[str]] | None = None
    for servers in _deals(list(room.items()), job.workers):
        jobs = (*question.running, settle(question, job, servers))
        value = steady_state(question.topology, jobs).value
        if best is None or value > best[0]:
            best = (value, servers)
    return None if best is None else best[1]


def _count(room: Iterable[int], workers: int) -> int:
    """Return the number of ways to distribute the workers."""
    ways = [1] + [0] * workers
    for count in room:
        ways = [sum(ways[max(0, left - count) : left + 1]) for left in range(workers + 1)]
    return ways[workers]


def _deals(room: Sequence[tuple[str, int]], workers: int) -> Iterator[list[str]]:
    if workers == 0:
        yield []
    elif room:
        (name, count), *others = room
        for here in range(min(count, workers), -1, -1):
            yield from ([name] * here + rest for rest in _deals(others, workers - here))
