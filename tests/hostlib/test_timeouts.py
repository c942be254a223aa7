"""Time-outs in C and in NumPy choose the same packets, whatever the state of a window."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from hostlib._native import NativeKernel
from hostlib.core.state import Chain, CoreSettings
from hostlib.core.window import Window
from tests.hostlib.cases import JOB, LANES
from tests.hostlib.virtual_network import endpoints
from tests.twins import NumpyKernel

CHAINS = 16
PACKETS = 3 * CHAINS
MS = 1_000_000
FLAGS = (Chain.QUEUED, Chain.COUNTED, Chain.ASKED, Chain.RESENT)


def window_in_any_state(draw: random.Random, kernel: Any, fallback: bool) -> Window:
    """Return a window with packets in flight that were sent, counted, asked for and queued at random."""
    spread = draw.choice((1, 2)) if fallback else 1
    settings = CoreSettings(
        *(JOB, 0, 2, 2 * CHAINS, LANES, endpoints(0)),
        window=CHAINS,
        fallback=fallback,
        spread=spread,
        first_psn=draw.randrange(100),
    )
    window = Window(settings, kernel)
    values = np.ones(PACKETS * LANES, np.int32)
    window.begin(values, values.copy(), tag=1, now=0)
    state, core = window.state, window.state.struct
    core.oldest = draw.randrange(PACKETS - CHAINS)
    core.frontier = core.oldest + CHAINS
    for index in range(core.oldest, core.frontier):
        chain = (core.base + index) % CHAINS
        state.index[chain] = index
        state.sent_at[chain] = draw.choice((1, 1, 5, 9, 12, 40)) * MS
        state.status[chain] = 0
        if draw.random() < 0.8:
            state.status[chain] = Chain.FLIGHT
            for flag in FLAGS:
                state.status[chain] |= np.uint16(flag if draw.random() < 0.4 else 0)
    core.completed = draw.choice((0, core.oldest))
    core.srtt = draw.choice((0, 2 * MS))
    core.rto, core.backoff = draw.choice((4 * MS, 30 * MS)), draw.choice((0, 0, 1, 3, 30))
    core.progress_at, core.timeout_at, core.probed_at = (draw.choice((0, 10 * MS)) for _ in range(3))
    core.probes = draw.choice((0, 1))
    core.resend_head = draw.randrange(CHAINS)
    return window


def state_of(window: Window) -> dict[str, Any]:
    state, core = window.state, window.state.struct
    numbers = ("resend_head", "resend_count", "backoff", "probes", "timeout_at", "probed_at")
    rings = {"status": state.status.tolist(), "resends": state.resend_ring.tolist()}
    return rings | {name: getattr(core, name) for name in numbers}


@pytest.mark.parametrize("fallback", [False, True], ids=["private", "fallback"])
def test_both_kernels_choose_the_same(fallback: bool) -> None:
    chosen = set()
    for seed in range(2000):
        now = random.Random(seed).choice((3, 14, 15, 50, 400)) * MS
        states = []
        for kernel in (NativeKernel(), NumpyKernel()):
            window = window_in_any_state(random.Random(seed), kernel, fallback)
            before = state_of(window)
            window.on_timeout(now)
            states.append(state_of(window))
        assert states[0] == states[1], f"seed {seed}"
        change = {name for name in before if before[name] != states[0][name]}
        chosen.add((bool(change), "probes" in change, "backoff" in change, states[0]["resend_count"] > 8))
    assert {(False, False, False, False), (True, True, False, False)} < chosen, "nothing due, and probes"
    assert any(time_out and many for _, _, time_out, many in chosen), "many at once"
