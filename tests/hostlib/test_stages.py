"""The stage timer: on a clock of its own for what it counts, on real stages for what it finds."""

from __future__ import annotations

import contextlib
import doctest
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostlib.core import priority
from hostlib.core.priority import HIGHEST, LOWEST, Urgency, priority_of
from hostlib.interleave.stages import (
    KEPT,
    STAGES,
    Iteration,
    Stage,
    StageError,
    StageProfile,
    StageTimer,
    Turns,
    job_profile,
)


class Clock:
    """A clock that the test moves; eighths of seconds add up exactly."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, timer: StageTimer, stage: Stage, duration_s: float) -> None:
        with timer.stage(stage):
            self.now_s += duration_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timer(clock: Clock) -> StageTimer:
    return StageTimer(clock=clock)


def test_each_second_goes_to_its_stage_and_the_rest_to_the_iteration_only(
    clock: Clock, timer: StageTimer
) -> None:
    with timer.iteration():
        clock.work(timer, "storage", 1)
        clock.now_s += 0.5
        clock.work(timer, "gpu", 4)
        clock.work(timer, "network", 2)
        clock.work(timer, "gpu", 3)
    assert timer.profile() == StageProfile((1, 0, 7, 2), 10.5, 1)


def test_what_lies_between_iterations_counts_nowhere(clock: Clock, timer: StageTimer) -> None:
    for _ in range(3):
        clock.now_s += 100
        with timer.iteration():
            clock.work(timer, "cpu", 1)
    assert timer.profile() == StageProfile((0, 1, 0, 0), 1, 3)


def test_the_profile_is_of_the_latest_iterations(clock: Clock, timer: StageTimer) -> None:
    for number in range(2 * KEPT):
        with timer.iteration():
            clock.work(timer, "cpu", 1 if number < KEPT else 2)
    assert timer.profile() == StageProfile((0, 2, 0, 0), 2, KEPT)


def test_one_slow_iteration_changes_nothing(clock: Clock, timer: StageTimer) -> None:
    for duration_s in (1, 1, 50, 1, 1):
        with timer.iteration():
            clock.work(timer, "gpu", duration_s)
    assert timer.profile().stages_s == (0, 0, 1, 0)


@given(st.lists(st.lists(st.integers(0, 100), min_size=4, max_size=4), min_size=1, max_size=9))
def test_stages_never_take_longer_than_the_iteration(rows: list[list[int]]) -> None:
    clock = Clock()
    timer = StageTimer(clock=clock)
    for row in rows:
        with timer.iteration():
            for stage, duration in zip(STAGES, row, strict=True):
                clock.work(timer, stage, duration / 8)
    profile = timer.profile()
    assert profile.iterations == len(rows)
    assert all(0 <= stage_s <= profile.iteration_s for stage_s in profile.stages_s)
    if len(rows) == 1:
        assert sum(profile.stages_s) == profile.iteration_s == sum(rows[0]) / 8


def test_an_iteration_that_fails_does_not_count(clock: Clock, timer: StageTimer) -> None:
    with pytest.raises(OSError, match="no such sample"), timer.iteration(), timer.stage("storage"):
        raise OSError("no such sample")
    with pytest.raises(StageError, match="no iteration has ended"):
        timer.profile()
    with timer.iteration():
        clock.work(timer, "cpu", 1)
    assert timer.profile() == StageProfile((0, 1, 0, 0), 1, 1)


def test_wrong_nesting_is_refused() -> None:
    timer = StageTimer()
    with pytest.raises(StageError, match="'cpu' began outside an iteration"), timer.stage("cpu"):
        pass
    with timer.iteration(), pytest.raises(StageError, match="inside an iteration"), timer.iteration():
        pass
    with (
        timer.iteration(),
        timer.stage("gpu"),
        pytest.raises(StageError, match="'cpu' began inside stage 'gpu'"),
        timer.stage("cpu"),
    ):
        pass
    with (
        timer.iteration(),
        pytest.raises(StageError, match=r"'disk' is unknown; there are storage, cpu, gpu, network"),
        timer.stage("disk"),  # type: ignore[arg-type]
    ):
        pass


def test_no_iterations_make_no_profile() -> None:
    with pytest.raises(StageError, match="there is no profile yet"):
        StageProfile.of([])
    assert StageProfile.of([Iteration((1, 2, 3, 4), 11)]).iteration_s == 11


def test_a_job_is_as_slow_as_its_slowest_rank_and_waiting_for_it_is_no_exchange() -> None:
    slow = Iteration((5, 1, 2, 3), 12)
    fast = Iteration((1, 1, 3, 6), 11)  # it waits in the exchange
    assert job_profile([[slow, fast], [fast, slow]]) == StageProfile((5, 1, 3, 3), 12, 2)
    assert job_profile([[slow, slow], [slow]]).iterations == 1
    with pytest.raises(StageError, match="there is no profile yet"):
        job_profile([[slow], []])


@pytest.fixture
def samples(tmp_path: Path) -> Iterator[int]:
    """A file of 8 MB whose pages are dropped from the cache before they are read."""
    path = tmp_path / "samples"
    path.write_bytes(np.random.default_rng(0).bytes(8 << 20))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    yield descriptor
    os.close(descriptor)


class Listener(Turns):
    """Nobody to take turns with, but every iteration is kept."""

    def __init__(self) -> None:
        self.iterations: list[Iteration] = []

    def iterated(self, done: Iteration) -> None:
        self.iterations.append(done)


def test_real_stages_are_found_where_they_are(samples: int) -> None:
    """Each stage's time is between what was measured inside it and what was measured around it."""
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((256, 256)).astype(np.float32)
    heard = Listener()
    timer = StageTimer(heard)
    inside: dict[Stage, float] = {}
    around: dict[Stage, float] = {}

    @contextlib.contextmanager
    def measured(stage: Stage) -> Iterator[None]:
        first_s = time.perf_counter()
        with timer.stage(stage):
            second_s = time.perf_counter()
            yield
            inside[stage] = time.perf_counter() - second_s
        around[stage] = time.perf_counter() - first_s

    for products in (1, 12, 3):
        with timer.iteration():
            with measured("storage"):
                os.posix_fadvise(samples, 0, 0, os.POSIX_FADV_DONTNEED)
                raw = os.pread(samples, 1 << 20, 0)
            with measured("cpu"):
                images = np.frombuffer(raw, np.uint8).reshape(-1, 256) / np.float32(255)
            with measured("gpu"):
                for _ in range(products):
                    images @ weights
        latest = heard.iterations[-1]
        for stage, stage_s in zip(STAGES[:3], latest.stages_s, strict=False):
            assert 0 < inside[stage] <= stage_s <= around[stage]
        assert latest.stages_s[3] == 0
        assert sum(latest.stages_s) < latest.total_s


layers = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n)))
shares = st.floats(0, 1)
seconds = st.floats(0, 1e9)
S = 1_000_000_000


def test_the_examples_in_the_documentation_hold() -> None:
    assert doctest.testmod(priority).failed == 0


@given(st.none() | layers, st.none() | shares, st.none() | seconds)
def test_every_tensor_has_a_priority_of_eight_bits_above_zero(
    layer: tuple[int, int] | None, share: float | None, remaining: float | None
) -> None:
    found = priority_of(layer=layer, communication_share=share, remaining_s=remaining)
    assert LOWEST <= found <= HIGHEST


@given(st.none() | layers, st.none() | shares, st.none() | seconds, layers, shares, shares, seconds, seconds)
def test_each_factor_alone_moves_the_priority_its_way(
    layer: tuple[int, int] | None,
    share: float | None,
    remaining: float | None,
    one: tuple[int, int],
    share_a: float,
    share_b: float,
    remaining_a: float,
    remaining_b: float,
) -> None:
    position, number = one
    front = [
        priority_of(layer=(p, number), communication_share=share, remaining_s=remaining)
        for p in (0, position, number - 1)
    ]
    assert front == sorted(front, reverse=True)
    by_share = [
        priority_of(layer=layer, communication_share=s, remaining_s=remaining)
        for s in sorted((share_a, share_b))
    ]
    assert by_share == sorted(by_share)
    by_time = [
        priority_of(layer=layer, communication_share=share, remaining_s=s)
        for s in sorted((remaining_a, remaining_b))
    ]
    assert by_time == sorted(by_time, reverse=True)


@given(layers, shares, seconds)
def test_what_is_not_known_is_neither_the_best_nor_the_worst(
    layer: tuple[int, int], share: float, remaining: float
) -> None:
    unknown = priority_of(communication_share=share, remaining_s=remaining)
    assert priority_of(layer=(0, 1), communication_share=share, remaining_s=remaining) >= unknown
    assert priority_of(layer=(1999, 2000), communication_share=share, remaining_s=remaining) <= unknown
    unknown = priority_of(layer=layer, communication_share=share)
    assert priority_of(layer=layer, communication_share=share, remaining_s=0) >= unknown
    assert priority_of(layer=layer, communication_share=share, remaining_s=1e9) <= unknown


@given(st.floats(2**-6, 0.5), st.floats(0.1, 1e4))
def test_factors_multiply(share: float, remaining: float) -> None:
    """Twice the share and twice the time cancel out, up to rounding."""
    one = priority_of(layer=(3, 9), communication_share=share, remaining_s=remaining)
    other = priority_of(layer=(3, 9), communication_share=2 * share, remaining_s=2 * remaining)
    assert abs(one - other) <= 1


def test_the_ends_of_the_range() -> None:
    assert priority_of(layer=(0, 50), communication_share=1.0, remaining_s=0.0) == HIGHEST
    assert priority_of(layer=(1023, 1024), communication_share=0.0, remaining_s=1e8) == LOWEST
    assert priority_of() == 128


def test_one_step_is_a_small_part_of_an_octave() -> None:
    minute = priority_of(remaining_s=60)
    hour = priority_of(remaining_s=3600)
    assert minute - hour == pytest.approx(254 / 50 * math.log2(60), abs=1)


@pytest.mark.parametrize("layer", [(3, 3), (-1, 3), (0, 0)])
def test_a_layer_that_is_not_one_is_refused(layer: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"must be \(position, layers\)"):
        priority_of(layer=layer)


class TestUrgency:
    def test_it_knows_nothing_at_first(self) -> None:
        urgency = Urgency(5 * S)
        assert urgency.communication_share(5 * S) is None
        assert urgency.communication_share(6 * S) is None
        assert urgency.remaining_s() is None
        assert urgency.priority(None, 6 * S) == 128

    def test_without_progress_the_share_is_that_of_all_time(self) -> None:
        urgency = Urgency(0)
        urgency.collective(1 * S, 2 * S)
        assert urgency.communication_share(2 * S) == 0.5
        assert urgency.communication_share(4 * S) == 0.25

    def test_iterations_give_share_and_remaining_time(self) -> None:
        urgency = Urgency(0)
        urgency.collective(0, 7 * S)  # warming up
        urgency.progress(0, 10, 10 * S)
        assert urgency.remaining_s() is None
        urgency.collective(11 * S, 12 * S)
        urgency.progress(1, 10, 12 * S)
        assert urgency.remaining_s() == 18
        assert urgency.communication_share(100 * S) == 0.5
        urgency.progress(3, 10, 16 * S)
        assert urgency.remaining_s() == 14
        assert urgency.communication_share(100 * S) == 0.375
        urgency.progress(10, 10, 30 * S)
        assert urgency.remaining_s() == 0

    def test_a_job_that_begins_again_is_measured_again(self) -> None:
        urgency = Urgency(0)
        urgency.progress(0, 5, 0)
        urgency.progress(1, 5, S)
        assert urgency.remaining_s() == 4
        urgency.progress(0, 5, 2 * S)
        assert urgency.remaining_s() is None

    @given(
        st.integers(2, 50),
        st.integers(1, 10**12),
        st.floats(0, 1),
        st.lists(st.integers(0, 10**12), max_size=5),
    )
    def test_after_a_change_it_follows(
        self, total: int, iteration_ns: int, share: float, before: list[int]
    ) -> None:
        """Whatever iterations were like, steady ones show within some dozens."""
        urgency, now = Urgency(0), 0
        for done, took in enumerate(before):
            urgency.progress(done, 1000, now)
            now += took
        for done in range(len(before), 100):
            urgency.progress(done, 1000, now)
            urgency.collective(now, now + int(share * iteration_ns))
            now += iteration_ns
        urgency.progress(100, 1000, now)
        remaining, measured = urgency.remaining_s(), urgency.communication_share(now)
        assert remaining == pytest.approx(900 * iteration_ns / 1e9, rel=0.05, abs=1)
        assert measured == pytest.approx(int(share * iteration_ns) / iteration_ns, abs=0.01)

    @pytest.mark.parametrize(("done", "total"), [(-1, 3), (4, 3), (0, 0)])
    def test_progress_that_is_none_is_refused(self, done: int, total: int) -> None:
        with pytest.raises(ValueError, match="must be 0 <= done <= total"):
            Urgency(0).progress(done, total, 0)
