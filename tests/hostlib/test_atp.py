"""Workers as ``atp.p4`` wants them: salts, and exact sums with the program itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, example, given, settings

from hostlib import wire
from hostlib._native import NativeKernel
from hostlib.core.state import CoreSettings
from hostlib.core.window import Window
from hostlib.fallback import FallbackCore, FallbackJob, FallbackSettings
from hostlib.wire.tree import Tree
from tests import effort
from tests.hostlib.cases import JOB, LANES, MakeKernel, MakeServer
from tests.hostlib.fabric import FabricCase, JobCase, fabric_cases, run
from tests.hostlib.one_window import begin, hear, sent
from tests.hostlib.virtual_network import Impairments
from tests.twins.fallback_core import NumpyCore
from tests.twins.kernel import NumpyKernel

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
WINDOW = 4
PACKET = wire.packet_dtype(LANES, framed=False)

atp_cases = fabric_cases.map(
    lambda case: replace(
        case, exclusive=False, atp=True, jobs=tuple(replace(job, preempt=False) for job in case.jobs)
    )
)

COLLIDING = FabricCase(
    (
        JobCase((0, 1, 2), frozenset({1, 2}), 12, (900, 1200), "float32"),
        JobCase((0, 0, 3), frozenset({3}), 12, (1500,), "fixed"),
    ),
    slots=16,
    impairments=Impairments(loss=0.02, duplicate=0.02),
    seed=5,
    atp=True,
)


@settings(SETTINGS, max_examples=effort.cases(120))
@given(atp_cases)
@example(COLLIDING)
def test_every_sum_is_exact(case: FabricCase) -> None:
    run(case, NativeKernel, FallbackCore)


@settings(SETTINGS, max_examples=effort.cases(30))
@given(atp_cases)
@example(COLLIDING)
def test_both_kernels_and_both_servers_send_the_same_packets_at_the_same_times(case: FabricCase) -> None:
    assert run(case, NativeKernel, FallbackCore) == run(case, NumpyKernel, NumpyCore)


def headers(case: FabricCase) -> list[dict[str, int]]:
    """Return the headers of what workers sent for the first time."""
    found = []
    for _, _, packet in run(case, NativeKernel, FallbackCore):
        raw = packet[wire.FRAME_PREFIX_BYTES :][: wire.INA_BYTES]
        fields = np.frombuffer(raw, wire.HEADER_DTYPE)[0]
        header = {name: int(fields[name]) for name in wire.HEADER_DTYPE.names or ()}
        if header["version_kind"] & 15 == wire.KIND_GRADIENT and not header["flags"] & wire.FLAG_RESEND:
            found.append(header)
    return found


def test_all_ranks_send_a_packet_with_the_same_salt() -> None:
    salts: dict[tuple[int, int], set[int]] = {}
    for header in headers(COLLIDING):
        salts.setdefault((header["job"], header["psn"]), set()).add(header["priority"])
    assert all(len(found) == 1 for found in salts.values())
    assert len(set.union(*salts.values())) > 3


# ------------------------------------------------------------------ one worker


def window_of(kernel: MakeKernel, rank: int = 0) -> Window:
    """Return a rank of two that has sent its first window of packets."""
    core = CoreSettings(
        *(JOB, rank, 2, 2 * WINDOW, LANES, None), window=WINDOW, fallback=True, spread=1, salted=True
    )
    window = Window(core, kernel())
    begin(window, 100 * WINDOW, priority=99)
    assert sent(window)["priority"].tolist() == [0] * WINDOW
    return window


def test_what_collided_gets_another_salt_next_time_and_keeps_it(make_kernel: MakeKernel) -> None:
    window = window_of(make_kernel)
    for psn in range(WINDOW):
        hear(window, wire.KIND_RESULT, psn, flags=wire.FLAG_COLLISION if psn == 2 else 0)
    assert sent(window)["priority"].tolist() == [0, 0, 1, 0]
    for psn in range(WINDOW, 2 * WINDOW):
        hear(window, wire.KIND_RESULT, psn, priority=int(psn == WINDOW + 2))
    assert sent(window)["priority"].tolist() == [0, 0, 1, 0]


def test_what_is_sent_again_keeps_its_salt(make_kernel: MakeKernel) -> None:
    window = window_of(make_kernel)
    hear(window, wire.KIND_RESULT, range(WINDOW), flags=wire.FLAG_COLLISION)
    sent(window)
    hear(window, wire.KIND_REMINDER, WINDOW, bitmap=1)
    (again,) = sent(window)
    assert (again["psn"], again["priority"]) == (WINDOW, 1)


def test_salts_begin_anew_after_255(make_kernel: MakeKernel) -> None:
    window = window_of(make_kernel)
    hear(window, wire.KIND_RESULT, range(WINDOW), flags=wire.FLAG_COLLISION, priority=255)
    assert sent(window)["priority"].tolist() == [0] * WINDOW


def test_a_rank_that_missed_a_collision_learns_of_it_with_the_next_result(make_kernel: MakeKernel) -> None:
    window = window_of(make_kernel)
    hear(window, wire.KIND_RESULT, range(WINDOW))
    sent(window)
    hear(window, wire.KIND_RESULT, range(WINDOW, 2 * WINDOW), priority=3)
    assert sent(window)["priority"].tolist() == [3] * WINDOW


def test_after_a_restart_of_the_server_ranks_still_have_the_same_salt(
    make_kernel: MakeKernel, make_core: MakeServer
) -> None:
    """Rank 0 has a result that collided and was lost on its way to rank 1, and the server forgot it."""
    core = make_core(FallbackSettings(LANES, None, capacity=100))
    core.add_job(FallbackJob(JOB, 0, Tree.star(2), window=WINDOW))
    ranks = [window_of(make_kernel, rank) for rank in range(2)]
    for window in ranks:
        hear(window, wire.KIND_RESULT, range(1, WINDOW))
    hear(ranks[0], wire.KIND_RESULT, 0, flags=wire.FLAG_COLLISION, priority=6)
    assert sent(ranks[0])["priority"].tolist() == [7, 0, 0, 0]
    assert sent(ranks[1]).size == 0, "it must not run ahead of what it lacks"

    hear(ranks[1], wire.KIND_REMINDER, 0, bitmap=2)
    hear(ranks[0], wire.KIND_REMINDER, 0, bitmap=1)
    out = np.zeros(PACKET.itemsize, np.uint8)
    for rank, kind in ((1, wire.KIND_PARTIAL), (0, wire.KIND_RESULT)):
        assert ranks[rank].emit(out, 0) == 1
        out.view(PACKET)["version_kind"] = wire.version_kind(kind)
        core.absorb(out, PACKET.itemsize, 0)
    assert core.emit(out, 0) == (1, PACKET.itemsize)
    ranks[1].absorb(out, PACKET.itemsize, 0)
    assert sent(ranks[1])["priority"].tolist() == [7, 0, 0, 0]
