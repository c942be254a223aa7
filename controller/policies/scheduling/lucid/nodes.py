"""Free GPUs of a cluster whose nodes are divided between the profiler and the rest."""

from __future__ import annotations

from controller.vocabulary import Cluster


class DividedNodes:
    """Free GPUs by node, consolidated: a job goes to the fullest node that holds it, or to whole idle nodes.

    The last `profiler` nodes belong to the profiler.
    """

    def __init__(self, cluster: Cluster, profiler: int) -> None:
        self._node_of = cluster.node_of
        first = cluster.first_gpu
        self._all = [node.gpus for node in cluster.servers]
        self._free = [
            list(range(first[n] + node.gpus - 1, first[n] - 1, -1)) for n, node in enumerate(cluster.servers)
        ]
        self._mine = [n >= len(self._all) - profiler for n in range(len(self._all))]

    @property
    def profiler_nodes(self) -> int:
        """Number of the profiler's nodes."""
        return sum(self._mine)

    def idle_fraction(self) -> float:
        """Return the idle fraction of the GPUs that are not the profiler's."""
        total = sum(n for n, mine in zip(self._all, self._mine, strict=True) if not mine)
        free = sum(len(f) for f, mine in zip(self._free, self._mine, strict=True) if not mine)
        return free / total if total else 0.0

    def lend(self, wanted: int) -> None:
        """Move idle nodes until the profiler has `wanted` nodes, or no node is idle."""
        while self.profiler_nodes != wanted:
            to_profiler = self.profiler_nodes < wanted
            for node, whole in enumerate(self._all):
                if self._mine[node] is not to_profiler and len(self._free[node]) == whole:
                    self._mine[node] = to_profiler
                    break
            else:
                return

    def take(self, gpus: int, *, profiler: bool) -> tuple[int, ...] | None:
        """Take `gpus` GPUs on one side, consolidated; return None if that is not possible."""
        nodes = [n for n, mine in enumerate(self._mine) if mine is profiler and self._free[n]]
        fitting = [n for n in nodes if len(self._free[n]) >= gpus]
        if fitting:
            return self._cut(min(fitting, key=lambda n: (len(self._free[n]), n)), gpus)
        idle = [n for n in nodes if len(self._free[n]) == self._all[n]]
        taken: list[int] = []
        for node in sorted(idle, key=lambda n: (-self._all[n], n)):
            if self._all[node] > gpus:
                break
            taken.append(node)
            gpus -= self._all[node]
        rest = [n for n in nodes if n not in taken and len(self._free[n]) >= gpus]
        if not taken or (gpus and not rest):
            return None
        found: tuple[int, ...] = ()
        for node in taken:
            found += self._cut(node, self._all[node])
        if gpus:
            found += self._cut(min(rest, key=lambda n: (len(self._free[n]), n)), gpus)
        return found

    def give(self, gpus: tuple[int, ...]) -> None:
        """Give GPUs back."""
        for gpu in gpus:
            self._free[self._node_of[gpu]].append(gpu)

    def _cut(self, node: int, gpus: int) -> tuple[int, ...]:
        free = self._free[node]
        free.sort(reverse=True)
        taken = tuple(free[: -gpus - 1 : -1])
        del free[-gpus:]
        return taken
