"""Random jobs on a common fabric of switches: what may be shared, and what must come out of it.

The fabric is a tree of four switches: 1 and 2 hang off 0, the root, and 3 off 1. Workers sit anywhere. For
each job each of 1, 2 and 3 sums what passes, or lets it pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hostlib import collectives, wire
from hostlib.core import Patience
from hostlib.core.congestion import CONGESTION, SPREAD, CongestionName
from hostlib.core.state import CoreSettings
from hostlib.fallback import FallbackCore, FallbackJob, FallbackSettings
from hostlib.wire import encodings
from hostlib.wire.tree import Tree
from tests.hostlib.cases import LANES, MakeKernel, MakeServer, sum_of
from tests.hostlib.compiled_switch import Job, ProgramName, compiled_from
from tests.hostlib.virtual_network import (
    Impairments,
    Network,
    Task,
    endpoints,
)
from tests.twins import quantize

ABOVE = {1: 0, 2: 1, 3: 0}
"""Switch by switch below; those behind a port are numbered in a row."""
UPLINK = 99
SWITCH_PORTS = (UPLINK, *(100 + below for below in ABOVE))
"""Ports between switches."""
SENTINEL = 77

Does = Literal["sum", "scatter", "gather", "broadcast"]
"""Allreduce or reduce, reduce-scatter, all-gather, broadcast."""


@dataclass(frozen=True)
class JobCase:
    """A job on the fabric."""

    places: tuple[int, ...]
    """Switch of each rank."""
    sums_at: frozenset[int]
    """Switches, beside the root, that sum."""
    window: int
    lengths: tuple[int, ...]
    kind: Literal["int32", "float32", "block16", "block8", "block4", "fixed"] = "int32"
    target: int = wire.TARGET_ALL
    """Of a sum; the root of a broadcast."""
    in_place: bool = False
    preempt: bool = False
    priority: int = 0
    congestion: CongestionName = "fixed"
    large: bool = False
    """Values so large that sums overflow."""
    first_psn: int = 0
    skew_us: int = 0
    does: Does = "sum"

    @property
    def root(self) -> int:
        """Rank that a broadcast is from."""
        return 0 if self.target == wire.TARGET_ALL else self.target

    @property
    def used(self) -> set[int]:
        """Switches that the job's packets pass."""
        used = {0}
        for place in self.places:
            while place:
                used.add(place)
                place = ABOVE[place]
        return used

    def node(self, switch: int) -> int:
        """Return the nearest switch from here upwards that sums."""
        while switch and switch not in self.sums_at:
            switch = ABOVE[switch]
        return switch

    @property
    def tree(self) -> Tree:
        nodes: dict[int, list[int]] = {
            switch: [] for switch in sorted(self.used) if self.node(switch) == switch
        }
        for rank, place in enumerate(self.places):
            nodes[self.node(place)].append(rank)
        for switch in nodes:
            if switch:
                nodes[self.node(ABOVE[switch])].append(-switch)
        return Tree.of(nodes)


@dataclass(frozen=True)
class FabricCase:
    """Jobs that run at the same time, and their network."""

    jobs: tuple[JobCase, ...]
    slots: int
    """Of each switch, shared by all jobs; exclusive switches give every job twice its window."""
    impairments: Impairments
    seed: int
    exclusive: bool = False
    max_age_us: int = 1_000_000
    forget_after: int = 0
    """Packets after which the fallback server is started again, and after twice as many; 0: never."""
    spare: int = 200
    """Memory of the fallback server beside the least that it needs for its jobs."""
    atp: bool = False
    """Workers as ``atp.p4`` wants them; `exclusive` is not for it."""


@st.composite
def job_cases(draw: st.DrawFn) -> JobCase:
    places = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple))
    if draw(st.booleans()):
        places = (0,) * len(places)
    kind = draw(st.sampled_from(["int32", "float32", *encodings.BLOCKS, "fixed"]))
    window = draw(st.integers(1, 16))
    wrap = 2**32 - 2**32 % (2 * window)
    return JobCase(
        places,
        draw(st.frozensets(st.integers(1, 3))),
        window,
        draw(st.lists(st.integers(0, 800), min_size=1, max_size=3).map(tuple)),
        kind,
        draw(st.one_of(st.just(wire.TARGET_ALL), st.integers(0, len(places) - 1))),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([0, 1, 7, 255])),
        draw(st.sampled_from(["fixed", "aimd", "a2tp"])),
        draw(st.booleans()) and kind in ("int32", "fixed"),
        draw(st.one_of(st.just(0), st.integers(wrap - 40, wrap - 1))) % wrap,
        draw(st.sampled_from([0, 0, 100, 30_000])),
        draw(st.sampled_from(["sum", "sum", "sum", "scatter", "gather", "broadcast"])),
    )


_chance = st.one_of(st.just(0.0), st.floats(0, 0.1))
fabric_cases = st.builds(
    FabricCase,
    st.lists(job_cases(), min_size=1, max_size=3).map(tuple),
    st.sampled_from([0, 1, 2, 5, 16, 64]),
    st.builds(Impairments, _chance, _chance, _chance, _chance, mark=_chance),
    st.integers(0, 2**32),
    st.booleans(),
    st.sampled_from([1_000, 1_000_000]),
    st.sampled_from([0, 0, 7, 50]),
    st.sampled_from([200, 200, 5, 0]),
)


def admissions(case: FabricCase, number: int) -> dict[int, Job]:
    """Return what each switch knows of a job."""
    job = case.jobs[number]
    tree = job.tree
    admitted = {}
    for switch in job.used:
        node = job.node(switch)
        members: dict[int, int] = {}
        ranks = {}
        for child in tree.nodes[node]:
            at = job.places[child] if child >= 0 else ABOVE[-child]
            port = worker_port(number, child) if child >= 0 else 100 - child
            while at not in (switch, 0):
                at, port = ABOVE[at], 100 + at
            if at != switch:
                continue
            members[port] = members.get(port, 0) | tree.parent(child)[1]
            if port < UPLINK:
                ranks[port] = child
        parent = None
        if node:
            above, bitmap = tree.parent(-node)
            parent = (above, bitmap, tree.fan_in(above))
        admitted[switch] = Job(
            tree.fan_in(node),
            2 * job.window if case.exclusive else case.slots,
            generation=0x501 + number,
            members=members,
            ranks=ranks,
            uplink=None if switch == 0 and case.exclusive else UPLINK,
            node=node,
            parent=parent,
            result_bitmap=tree.result_bitmap,
            transit=node != switch,
            below=nodes_below(tree, switch),
            ranks_below=ranks_below(job, switch),
            preempt=job.preempt,
            window=job.window,
            max_age_us=case.max_age_us,
        )
    return admitted


def nodes_below(tree: Tree, switch: int) -> dict[int, range]:
    """Return the nodes of a tree behind the ports of a switch that lead down."""
    below: dict[int, range] = {}
    for node in sorted(tree.nodes):
        at = node
        while at not in (switch, 0):
            at, port = ABOVE[at], 100 + at
            if at == switch:
                first = below[port].start if port in below else node
                below[port] = range(first, node + 1)
    return below


def ranks_below(job: JobCase, switch: int) -> dict[int, range]:
    """Return the ranks among which those behind the ports of a switch that lead down are."""
    behind: dict[int, list[int]] = {}
    for rank, place in enumerate(job.places):
        at = place
        while at not in (switch, 0):
            at, port = ABOVE[at], 100 + at
            if at == switch:
                behind.setdefault(port, []).append(rank)
    return {port: range(ranks[0], ranks[-1] + 1) for port, ranks in behind.items()}


def worker_port(job: int, rank: int) -> int:
    return 10 * job + rank


class Restarted:
    """A fallback server that forgets everything after so many packets, then after twice as many; 0: never."""

    def __init__(self, make: Callable[[], FallbackCore], after: int) -> None:
        self._make, self._after, self._received = make, after, 0
        self._core = make()

    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None:
        self._received += 1
        if self._received == self._after:
            self._after *= 2
            self._core = self._make()
        self._core.absorb(data, segment, now)

    def emit(self, out: NDArray[Any], now: int) -> tuple[int, int]:
        return self._core.emit(out, now)

    def next_timeout(self) -> int:
        return self._core.next_timeout()


def server_of(case: FabricCase, make: MakeServer) -> FallbackCore:
    """Return a fallback server that serves all jobs."""
    least = max(max(len(job.places), len(job.tree.nodes)) for job in case.jobs) * len(case.jobs)
    server = make(FallbackSettings(LANES, endpoints(200), capacity=least + case.spare))
    for number, job in enumerate(case.jobs):
        server.add_job(FallbackJob(10 + number, 1 + number, job.tree, window=job.window))
    return server


def build(
    case: FabricCase,
    make_kernel: MakeKernel,
    make_server: MakeServer = FallbackCore,
) -> Network:
    program: ProgramName = "exclusive" if case.exclusive else "atp" if case.atp else "shared"
    network = Network(impairments=case.impairments, seed=case.seed, lanes=LANES)
    admitted = [admissions(case, number) for number in range(len(case.jobs))]
    for switch in range(4):
        jobs = {10 + number: jobs[switch] for number, jobs in enumerate(admitted) if switch in jobs}
        network.add_switch(switch, compiled_from(jobs, LANES, program, SWITCH_PORTS))
    for below, above in ABOVE.items():
        network.connect((below, UPLINK), (above, 100 + below))
    if not case.exclusive:
        network.add_server(Restarted(lambda: server_of(case, make_server), case.forget_after), (0, UPLINK))
    for number, job in enumerate(case.jobs):
        for rank, place in enumerate(job.places):
            settings = CoreSettings(
                10 + number,
                rank,
                len(job.places),
                2 * job.window,
                LANES,
                endpoints(10 * number + rank),
                first_psn=job.first_psn,
                tree=job.tree,
                epoch=1 + number,
                window=job.window,
                fallback=not case.exclusive,
                spread=1 if case.atp else SPREAD,
                bare=bool(case.seed % 2),
                salted=case.atp,
                numbers=numbers_of(job),
            )
            network.add_worker(
                settings,
                make_kernel(),
                (place, worker_port(number, rank)),
                patience=Patience(200, 600),
                congestion=CONGESTION[job.congestion](),
            )
    return network


def numbers_of(job: JobCase) -> encodings.Encoding:
    return "exponent" if job.kind in ("int32", "float32") else job.kind


def make_inputs(rng: np.random.Generator, job: JobCase, length: int) -> list[NDArray[Any]]:
    size = len(job.places)
    if job.kind == "int32":
        top = 2**31 - 1 if job.large else 10**7
        return [rng.integers(-top, top, length).astype(np.int32) for _ in range(size)]
    if job.kind == "fixed":
        scale = (
            rng.choice([1.0, 100.0, 1e4, 1e10], (size, length), p=[0.97, 0.01, 0.01, 0.01])
            if job.large
            else 1
        )
        return list((rng.standard_normal((size, length)) * scale).astype(np.float32))
    scale = np.exp2(rng.integers(-60, 60, (size, 1)))
    return list((rng.standard_normal((size, length)) * scale).astype(np.float32))


def carry_out(case: FabricCase, network: Network) -> None:
    """Carry out all collectives of all jobs and check every result."""
    rng = np.random.default_rng(case.seed)
    tasks: list[list[Task]] = []
    inputs: list[list[list[NDArray[Any]]]] = []
    for job in case.jobs:
        shards = len(job.places) if job.does == "scatter" else 1
        inputs.append([make_inputs(rng, job, shards * length) for length in job.lengths])
        for rank in range(len(job.places)):
            tasks.append([])
            for arrays in inputs[-1]:
                plan, target = plan_of(job, rank, arrays[rank].copy())
                wait = int(rng.integers(0, job.skew_us + 1))
                tasks[-1].append(Task(plan, target, job.priority, wait))
    for worker in network.workers:
        worker.numeric_errors.clear()
    network.run_tasks(tasks)
    first = 0
    for job, rounds in zip(case.jobs, inputs, strict=True):
        workers = network.workers[first : first + len(job.places)]
        for i, arrays in enumerate(rounds):
            plans = [task[i].collective for task in tasks[first : first + len(job.places)]]
            results = [plan.staged.finish() for plan in plans]
            overflows = [worker.numeric_errors[i].overflow is not None for worker in workers]
            if job.does != "sum":
                check_moved(case, job, results, arrays, overflows)
                continue
            for rank, result in enumerate(results):
                if job.target not in (rank, wire.TARGET_ALL):
                    assert (result == (arrays[rank] if job.in_place else SENTINEL)).all(), "output touched"
            got = results if job.target == wire.TARGET_ALL else [results[job.target]]
            check(case, job, got, arrays, overflows)
        first += len(job.places)


def free(out: NDArray[Any]) -> collectives.CallOptions:
    """Return the options of a call whose sums may hold anything."""
    return collectives.CallOptions(out, nonfinite="propagate")


def plan_of(job: JobCase, rank: int, array: NDArray[Any]) -> tuple[collectives.Collective, int]:
    """Return what a rank asks for, and the target as its window takes it."""
    size = len(job.places)
    if job.does == "sum":
        out = array if job.in_place else np.full_like(array, SENTINEL)
        return collectives.make_collective(array, "sum", free(out)), job.target
    if job.does == "scatter":
        length = len(array) // size
        out = array[rank * length : (rank + 1) * length]
        out = out if job.in_place else np.full_like(out, SENTINEL)
        scatter = collectives.make_reduce_scatter(array, "sum", free(out), number=0, rank=rank, size=size)
        return scatter, wire.TARGET_ALL
    if job.does == "gather":
        out = np.full(size * len(array), SENTINEL, array.dtype)
        if job.in_place:
            out[rank * len(array) : (rank + 1) * len(array)] = array
            array = out[rank * len(array) : (rank + 1) * len(array)]
        return collectives.make_all_gather(array, free(out), number=0, rank=rank, size=size), wire.TARGET_ALL
    out = array if job.in_place else np.full_like(array, SENTINEL)
    return collectives.make_broadcast(array, job.root, free(out), number=0, rank=rank), job.root


def check_moved(
    case: FabricCase,
    job: JobCase,
    results: Sequence[NDArray[Any]],
    inputs: Sequence[NDArray[Any]],
    overflows: Sequence[bool],
) -> None:
    """Check the results of what is no allreduce."""
    if job.does == "scatter":
        assert all(overflows) or not any(overflows), "not all ranks were told"
        length = len(inputs[0]) // len(inputs)
        lost = []
        for rank, result in enumerate(results):
            shard = slice(rank * length, (rank + 1) * length)
            lost.append(shard_is_lost(job, [array[shard] for array in inputs]))
            if not overflows[0]:
                check(case, job, [result], [array[shard] for array in inputs], overflows)
        if any(lost):
            assert all(overflows), "an overflow was not told"
        elif not case.exclusive:
            assert not any(overflows), "an overflow was not repaired"
        return
    assert not any(overflows)
    right = np.concatenate(inputs) if job.does == "gather" else inputs[job.root]
    for result in results:
        assert result.tobytes() == right.tobytes()


def shard_is_lost(job: JobCase, inputs: Sequence[NDArray[Any]]) -> bool:
    exact = np.sum([array.astype(np.float64) for array in inputs], axis=0)
    return job.kind == "int32" and bool((np.abs(exact + 0.5) > 2**31).any())


def check(
    case: FabricCase,
    job: JobCase,
    results: Sequence[NDArray[Any]],
    inputs: Sequence[NDArray[Any]],
    overflows: Sequence[bool],
) -> None:
    exact = np.sum([array.astype(np.float64) for array in inputs], axis=0)
    wrong = False
    elements = LANES * encodings.per_lane(numbers_of(job))
    for start in range(0, len(exact), elements):
        packet = slice(start, start + elements)
        if job.kind == "int32" and (np.abs(exact[packet] + 0.5) > 2**31).any():
            wrong = True
            continue
        for result in results:
            if not any(overflows):
                assert result[packet].tobytes() == results[0][packet].tobytes(), "ranks got different sums"
            check_packet(
                case, job, result[packet], [array[packet] for array in inputs], exact[packet], overflows
            )
    if wrong:
        assert all(overflows), "an overflow was not told"
    elif not case.exclusive:
        assert not any(overflows), "an overflow was not repaired"


def check_packet(
    case: FabricCase,
    job: JobCase,
    result: NDArray[Any],
    inputs: Sequence[NDArray[Any]],
    exact: NDArray[np.float64],
    overflows: Sequence[bool],
) -> None:
    ranks = len(inputs)
    if job.kind == "int32":
        assert (result == exact).all() or (case.exclusive and all(overflows))
    elif job.kind == "float32":
        exponent = max(int(quantize.exponents(array)) for array in inputs)
        assert (np.abs(result - exact) <= encodings.error_bound(exponent, ranks)).all()
    elif job.kind != "fixed":
        exponent = max(int(quantize.exponents(array)) for array in inputs)
        assert (np.abs(result - exact) <= encodings.block_error_bound(exponent, ranks, job.kind)).all()
        assert np.array_equal(result, sum_of(inputs, job.kind)), "not the sum of what was rounded"
    elif all(quantize.quantize_fixed(array[None], 20, ranks)[1][0] for array in inputs):
        largest = max(float(np.abs(array).max()) for array in inputs)
        assert (np.abs(result - exact) <= encodings.fixed_error_bound(largest, 20, ranks)).all()
    elif case.exclusive:
        assert all(overflows)
    else:
        total = inputs[0].astype(np.float64)
        for array in inputs[1:]:
            total = total + array
        assert np.array_equal(result, total.astype(np.float32))
