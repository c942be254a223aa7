"""`blossom.c` in Python, function by function and with the reasons: what it is tested against, ties included.

This is the O(n^3) primal-dual method with the order of search that the public simulator has: labels start at
the largest weight, the free nodes are searched breadth first in order of number, an edge is tight when its
slack is not positive, and the search for another augmenting path ends when a label runs out.

Reference: Galil, "Efficient algorithms for finding maximum matching in graphs", Computing Surveys 18 (1986).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

FREE, OUTER, INNER = -1, 0, 1


def dense_matching(weights: Sequence[Sequence[float]]) -> list[int]:
    """Return each node's partner in a maximum-weight matching, -1 for none; some weight must not be 0."""
    search = _Search(weights)
    while search.augment_once():
        pass
    return [partner - 1 for partner in search.match[1 : len(weights) + 1]]


class _Search:
    """Nodes are 1 to n, blossoms beyond. `ends[a][b]` is the lightest edge between them, as its two nodes."""

    def __init__(self, weights: Sequence[Sequence[float]]) -> None:
        count = len(weights)
        self.count = self.top = count
        # doubled once: the slack of (u, v) is label[u] + label[v] - 2 w
        self.double = [[0.0] * (count + 1), *([0.0, *(2.0 * w for w in row)] for row in weights)]
        self.neighbours = [
            [v for v, w in enumerate(row) if w > 0.0 and v != u] for u, row in enumerate(self.double)
        ]
        self.linked = [[w > 0.0 for w in row] for row in self.double]
        self.ends: list[list[tuple[int, int]]] = [
            [(u, v) for v in range(count + 1)] for u in range(count + 1)
        ]
        self.label = [max(map(max, weights))] * (count + 1)
        self.match = [0] * (count + 1)
        self.root = list(range(count + 1))  # the outermost blossom around each; 0: not in use
        self.cycle: list[list[int]] = [[] for _ in range(count + 1)]
        self.part = [[u if u == v else 0 for v in range(count + 1)] for u in range(count + 1)]
        self.state = [FREE] * (count + 1)
        self.parent = [0] * (count + 1)
        self.lightest = [0] * (count + 1)  # the outer node that is nearest, by slack
        self.seen = [0] * (count + 1)
        self.stamp = 0
        self.queue: deque[int] = deque()

    def slack(self, a: int, b: int) -> float:
        u, v = self.ends[a][b]
        return self.label[u] + self.label[v] - self.double[u][v]

    def augment_once(self) -> bool:
        """Search for one augmenting path and apply it; return whether there was one."""
        count, label, root = self.count, self.label, self.root
        self.state = state = [FREE] * (self.top + 1)
        self.lightest = lightest = [0] * (self.top + 1)
        queue: deque[int] = deque()
        self.queue = queue
        for x in range(1, self.top + 1):
            if root[x] == x and not self.match[x]:
                self.parent[x] = 0
                state[x] = OUTER
                self._enqueue(x)
        if not queue:
            return False
        while True:
            while queue:
                u = queue.popleft()
                if state[root[u]] == INNER:
                    continue
                row = self.double[u]
                label_u = label[u]
                ends_u = self.ends[u]
                for v in self.neighbours[u]:
                    x = root[v]
                    if root[u] == x:
                        continue
                    if label_u + label[v] - row[v] <= 0.0:
                        if self._tight(u, v):
                            return True
                    elif not (other := lightest[x]):
                        lightest[x] = u
                    elif other != u:
                        p, q = ends_u[x]
                        r, s = self.ends[other][x]
                        if label[p] + label[q] - self.double[p][q] < label[r] + label[s] - self.double[r][s]:
                            lightest[x] = u
            if not self._relax():
                return False
            queue.clear()
            for x in range(1, self.top + 1):
                near = lightest[x]
                if near and root[x] == x and root[near] != x and self.slack(near, x) <= 0.0:
                    u, v = self.ends[near][x]
                    if self._tight(u, v):
                        return True
            for b in range(count + 1, self.top + 1):
                if root[b] == b and state[b] == INNER and label[b] <= 0.0:
                    self._expand(b)

    def _relax(self) -> bool:
        """Change the labels by as much as is possible; return False if one of them runs out."""
        label, root, state, count = self.label, self.root, self.state, self.count
        step = math.inf
        for b in range(count + 1, self.top + 1):
            if root[b] == b and state[b] == INNER:
                step = min(step, label[b] / 2.0)
        for x in range(1, self.top + 1):
            near = self.lightest[x]
            if near and root[x] == x:
                if state[x] == FREE:
                    step = min(step, self.slack(near, x))
                elif state[x] == OUTER:
                    step = min(step, self.slack(near, x) / 2.0)
        for u in range(1, count + 1):
            match state[root[u]]:
                case 0:
                    if label[u] <= step or math.isclose(label[u], step, rel_tol=1e-5):
                        return False
                    label[u] -= step
                case 1:
                    label[u] += step
        for b in range(count + 1, self.top + 1):
            if root[b] == b:
                if state[b] == OUTER:
                    label[b] += step * 2
                elif state[b] == INNER:
                    label[b] -= step * 2
        return True

    def _tight(self, node_u: int, node_v: int) -> bool:
        """Use a tight edge from an outer node: grow the tree, shrink a blossom, or augment (and say so)."""
        u, v = self.root[node_u], self.root[node_v]
        if self.state[v] == FREE:
            self.parent[v] = node_u
            self.state[v] = INNER
            mate = self.root[self.match[v]]
            self.lightest[v] = self.lightest[mate] = 0
            self.state[mate] = OUTER
            self._enqueue(mate)
        elif self.state[v] == OUTER:
            ancestor = self._common_ancestor(u, v)
            if not ancestor:
                self._flip(u, v)
                self._flip(v, u)
                return True
            self._shrink(u, ancestor, v)
        return False

    def _enqueue(self, x: int) -> None:
        level = deque((x,))
        while level:
            x = level.popleft()
            if x <= self.count:
                self.queue.append(x)
            else:
                level.extend(self.cycle[x])

    def _common_ancestor(self, u: int, v: int) -> int:
        self.stamp += 1
        while u or v:
            if u:
                if self.seen[u] == self.stamp:
                    return u
                self.seen[u] = self.stamp
                u = self.root[self.match[u]]
                if u:
                    u = self.root[self.parent[u]]
            u, v = v, u
        return 0

    def _flip(self, u: int, v: int) -> None:
        """Match along the path from u to its tree's root."""
        while True:
            mate = self.root[self.match[u]]
            self._set_match(u, v)
            if not mate:
                return
            above = self.root[self.parent[mate]]
            self._set_match(mate, above)
            u, v = above, mate

    def _set_match(self, u: int, v: int) -> None:
        work = deque(((u, v),))
        while work:
            u, v = work.popleft()
            near, far = self.ends[u][v]
            self.match[u] = far
            if u <= self.count:
                continue
            entry = self.part[u][near]
            position = self._even_position(u, entry)
            cycle = self.cycle[u]
            for number in range(position):
                work.append((cycle[number], cycle[number ^ 1]))
            work.append((entry, v))
            self.cycle[u] = cycle[position:] + cycle[:position]

    def _even_position(self, b: int, entry: int) -> int:
        """Return the position of `entry` in the cycle of b, turning the cycle round if it is odd."""
        cycle = self.cycle[b]
        position = cycle.index(entry)
        if position % 2 == 0:
            return position
        self.cycle[b] = [cycle[0], *reversed(cycle[1:])]
        return len(cycle) - position

    def _set_root(self, x: int, b: int) -> None:
        self.root[x] = b
        if x > self.count:
            for inner in self.cycle[x]:
                self._set_root(inner, b)

    def _shrink(self, u: int, ancestor: int, v: int) -> None:
        b = self._new_blossom()
        self.label[b] = 0.0
        self.state[b] = OUTER
        self.match[b] = self.match[ancestor]
        cycle = [ancestor]
        self.cycle[b] = cycle
        self._climb(u, ancestor, cycle)
        cycle[1:] = reversed(cycle[1:])
        self._climb(v, ancestor, cycle)
        self._set_root(b, b)
        top, ends, linked, part = self.top, self.ends, self.linked, self.part
        for x in range(1, top + 1):
            linked[b][x] = linked[x][b] = False
        part[b] = [0] * (self.count + 1)
        for inner in cycle:
            for x in range(1, top + 1):
                # as in the original an inner part without an edge can be taken over, but never wins
                if not linked[b][x] or self.slack(inner, x) < self.slack(b, x):
                    ends[b][x], linked[b][x] = ends[inner][x], linked[inner][x]
                    ends[x][b], linked[x][b] = ends[x][inner], linked[x][inner]
            owner = part[inner]
            for x in range(1, self.count + 1):
                if owner[x]:
                    part[b][x] = inner
        self._set_lightest(b)

    def _climb(self, x: int, ancestor: int, cycle: list[int]) -> None:
        while x != ancestor:
            cycle.append(x)
            mate = self.root[self.match[x]]
            cycle.append(mate)
            self._enqueue(mate)
            x = self.root[self.parent[mate]]

    def _new_blossom(self) -> int:
        for b in range(self.count + 1, self.top + 1):
            if not self.root[b]:
                return b
        self.top += 1
        for row in self.ends:
            row.append((0, 0))
        self.ends.append([(0, 0)] * (self.top + 1))
        for links in self.linked:
            links.append(False)
        self.linked.append([False] * (self.top + 1))
        for values in (self.label, self.match, self.root, self.parent, self.lightest, self.seen):
            values.append(0)
        self.state.append(FREE)
        self.cycle.append([])
        self.part.append([])
        return self.top

    def _set_lightest(self, x: int) -> None:
        lightest, ends, label, double = self.lightest, self.ends, self.label, self.double
        lightest[x] = 0
        best = 0.0
        for u in range(1, self.count + 1):
            if self.linked[u][x] and self.root[u] != x and self.state[self.root[u]] == OUTER:
                p, q = ends[u][x]
                slack = label[p] + label[q] - double[p][q]
                if not lightest[x] or slack < best:
                    lightest[x], best = u, slack

    def _expand(self, b: int) -> None:
        for inner in self.cycle[b]:
            self._set_root(inner, inner)
        near, _ = self.ends[b][self.parent[b]]
        entry = self.part[b][near]
        position = self._even_position(b, entry)
        cycle = self.cycle[b]
        for number in range(0, position, 2):
            x, y = cycle[number], cycle[number + 1]
            self.parent[x] = self.ends[y][x][0]
            self.state[x], self.state[y] = INNER, OUTER
            self.lightest[x] = 0
            self._set_lightest(y)
            self._enqueue(y)
        self.state[entry], self.parent[entry] = INNER, self.parent[b]
        for x in cycle[position + 1 :]:
            self.state[x] = FREE
            self._set_lightest(x)
        self.root[b] = 0
