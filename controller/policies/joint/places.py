"""Where a job could run: servers, fallback server and tree together.

What a place is worth is NetPack's objective (`placement.netpack.worth`), with slots held for as
long as was measured. Trees end at the summing switch nearest to
the fallback server, or in the fallback server's rack, whichever sums there; where flows pass from rack to
rack, each such tree is also tried over another switch. So a job sees which links and slots others have left.

>>> from controller.policies.placement.policy import Question, settle
>>> from controller.vocabulary import Job, fabrics
>>> racks = fabrics.leaf_spine(2, 2, 2)
>>> job = settle(Question(racks, (), random.Random(0)), Job(name="a", workers=2), ["h1", "h3"])
>>> [sorted(each.tree.switches) for each in over_trees(racks, job)]
[['leaf1', 'leaf2', 'spine1'], ['leaf1', 'leaf2', 'spine2']]
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from controller.policies.placement.flows import steady_state
from controller.policies.placement.policy import Question, settle
from controller.policies.placement.trees import paths_up, racks_of, tidy, ways_to
from controller.vocabulary import Job, Topology, Tree

WAYS = 1
"""Other switches between racks over which each tree is tried."""


def over_trees(topology: Topology, job: Job) -> list[Job]:
    """Return a placed job with each of the trees to compare, that of shortest paths first."""
    if job.tree is None:
        return [job]
    racks = racks_of(topology, job)
    end = job.tree.root if job.fallback is None else topology.rack_of[job.fallback]
    found: list[Tree] = [job.tree]
    for root in dict.fromkeys((job.tree.root, end)):
        straight = _tree(topology, job, root, paths_up(topology, racks, root))
        others = (_tree(topology, job, root, each) for each in _detours(topology, racks, root, straight))
        found += [tree for tree in (straight, *others) if tree not in found]
    return [job.on(job.servers, job.fallback, tree) for tree in found]


def _tree(topology: Topology, job: Job, root: str, parents: dict[str, str]) -> Tree:
    able = frozenset(name for name in (root, *parents) if topology.switch[name].aggregates)
    return tidy(topology, job, Tree(root, parents, able))


def _detours(topology: Topology, racks: Sequence[str], root: str, straight: Tree) -> Iterator[dict[str, str]]:
    """Return the parents of trees over switches without servers that `straight` does not use, nearest first.

    Only ways as short as the shortest of these, so that no tree takes a detour.
    """
    if all(rack == root for rack in racks):
        return
    ways = ways_to(topology, [*racks, root])
    between = [
        each.name
        for each in topology.switches
        if each.name not in topology.racks and each.name not in straight.switches
    ]
    nearest = sorted(between, key=lambda name: int(ways[topology.number_of[name]]))
    for middle in nearest[:WAYS]:
        parents: dict[str, str] = {}
        for rack in racks:
            way = [*topology.way(rack, middle)[:-1], *topology.way(middle, root)]
            if rack == root or len(set(way)) < len(way):
                continue
            for node, above in pairwise(way):
                if node in parents:
                    break
                parents[node] = above
        if all(rack == root or rack in parents for rack in racks):
            yield parents


def rate_alone_bps(topology: Topology, job: Job, servers: Sequence[str]) -> float:
    """Return the best rate of a job's gradients on these servers of an empty cluster, bits per second."""
    question = Question(topology, (), random.Random(0))
    options = over_trees(topology, settled(question, job, servers))
    return max(float(steady_state(topology, [each], measured=True).steady.rate_bps[0]) for each in options)


def settled(question: Question, job: Job, servers: Sequence[str]) -> Job:
    """Return a job on these servers with a fallback server and shortest paths, whatever it had before."""
    return settle(question, job.on((), job.fallback, None), servers)
