"""Random jobs on a common fabric of switches: what may be shared, and what must come out of it.

The fabric is a tree of four switches: 1 and 2 hang off 0, the root, and 3 off 1. Workers sit anywhere. For
each job each of 1, 2 and 3 sums what passes, or lets it pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller.switches.layout import Branch, Deployment, Downlink, TreeAdmission
from controller.switches.model import Member, Uplink
from controller.switches.planning import Identity
from controller.vocabulary import Mode, Region
from hostlib import collectives, wire
from hostlib._native import NativeKernel
from hostlib.core import Patience
from hostlib.core.congestion import CONGESTION, SPREAD, CongestionName
from hostlib.core.state import CoreSettings
from hostlib.fallback import FallbackCore, FallbackJob, FallbackSettings
from hostlib.wire import encodings
from hostlib.wire.tree import Tree
from tests.contract.admitted import LANES, admit, serving
from tests.hostlib.cases import MakeKernel, MakeServer, sum_of
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
SERVER = Uplink(UPLINK, "02:00:00:00:fb:01", "10.0.255.2")
SENTINEL = 77
SLOTS = 1024

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
    """At least; the controller rounds it up to a power of two."""
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
        draw(st.sampled_from(["fixed", "aimd", "a2tp", "tcp"])),
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


def server_of(case: FabricCase, admitted: Sequence[TreeAdmission], make: MakeServer) -> FallbackCore:
    """Return a fallback server that serves all jobs."""
    least = max(max(len(job.places), len(job.tree.nodes)) for job in case.jobs) * len(case.jobs)
    server = make(FallbackSettings(LANES, endpoints(200), capacity=least + case.spare))
    for at in admitted:
        server.add_job(FallbackJob(at.job, at.epoch, Tree.of(at.tree), window=at.window))
    return server


def build(
    case: FabricCase,
    make_kernel: MakeKernel = NativeKernel,
    make_server: MakeServer = FallbackCore,
) -> Network:
    """Return the network of a case: programs as the controller admits jobs to them, and a fallback server."""
    program: Mode = "exclusive" if case.exclusive else "shared"
    trees = {
        Identity(10 + number, 0x501 + number): _deployment(case, number, program)
        for number in range(len(case.jobs))
    }
    admitted, present = admit(program, trees, SLOTS)
    network = Network(impairments=case.impairments, seed=case.seed, lanes=LANES)
    for name, admissions in present.items():
        network.add_switch(int(name), serving("atp" if case.atp else program, admissions, slots=SLOTS))
    for below, above in ABOVE.items():
        if below in network.switches:
            network.connect((below, UPLINK), (above, 100 + below))
    if not case.exclusive:
        make = functools.partial(server_of, case, admitted, make_server)
        network.add_server(Restarted(make, case.forget_after), (0, UPLINK))
    for number, (job, at) in enumerate(zip(case.jobs, admitted, strict=True)):
        for rank, place in enumerate(job.places):
            settings = CoreSettings(
                at.job,
                rank,
                len(job.places),
                2 * at.window,
                LANES,
                endpoints(10 * number + rank),
                first_psn=job.first_psn,
                tree=Tree.of(at.tree),
                epoch=at.epoch,
                window=at.window,
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


def _deployment(case: FabricCase, number: int, program: Mode) -> Deployment:
    job = case.jobs[number]
    root = _switch(case, number, 0)
    if program == "exclusive":
        return Deployment(root, max(2, 2 * job.window))
    return Deployment(
        root,
        mode=program,
        preempt=job.preempt,
        window=job.window,
        max_age_us=case.max_age_us,
        fallback=SERVER,
    )


def _switch(case: FabricCase, number: int, switch: int) -> Branch:
    job: JobCase = case.jobs[number]
    members = tuple(
        Member(rank, worker_port(number, rank), f"02:00:00:00:{number:02x}:{rank:02x}", "10.0.0.1", 42592)
        for rank, place in enumerate(job.places)
        if place == switch
    )
    links = tuple(
        Downlink(100 + below, _switch(case, number, below), UPLINK)
        for below, above in ABOVE.items()
        if above == switch and below in job.used
    )
    return Branch(
        str(switch),
        members,
        links,
        region=None if case.exclusive else Region(0, case.slots),
        transit=job.node(switch) != switch,
    )


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
        return collectives.make_move("reduce_scatter", array, free(out), rank, size), wire.TARGET_ALL
    if job.does == "gather":
        out = np.full(size * len(array), SENTINEL, array.dtype)
        if job.in_place:
            out[rank * len(array) : (rank + 1) * len(array)] = array
            array = out[rank * len(array) : (rank + 1) * len(array)]
        return collectives.make_move("all_gather", array, free(out), rank, size), wire.TARGET_ALL
    out = array if job.in_place else np.full_like(array, SENTINEL)
    return collectives.make_move("broadcast", array, free(out), rank, size, root=job.root), job.root


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


def run(
    case: FabricCase, make_kernel: MakeKernel, make_server: MakeServer = FallbackCore
) -> list[tuple[int, int, bytes]]:
    """Carry out a case on the compiled program; return each packet with the time and its worker."""
    seen: list[tuple[int, int, bytes]] = []
    network = build(case, make_kernel, make_server)

    def record(worker: int, packet: bytes, upwards: bool) -> bool:
        seen.append((network.now, worker, packet))
        return True

    network.on_packet = record
    carry_out(case, network)
    return seen
