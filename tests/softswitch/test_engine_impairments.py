"""Impairments: what they do on average, and that a seed settles everything."""

from __future__ import annotations

import pytest

from softswitch.engine.ports import Impairments, LinkModel, MemoryPort, PortImpairments
from softswitch.engine.switch import Switch
from tests.softswitch.script_program import ScriptPipeline, frame, have_compiler, seen

native = pytest.mark.skipif(not have_compiler, reason="no C compiler")
FRAMES = 20_000


def run(
    link: PortImpairments, *, seed: int = 0, frames: int = FRAMES
) -> tuple[list[tuple[int, int]], Switch]:
    """Send numbered frames from port 0 to 1, one per microsecond; what arrived: (time, number)."""
    with Switch({0: MemoryPort(), 1: MemoryPort()}, seed=seed, impairments={1: link}) as switch:
        switch.load(ScriptPipeline())  # type: ignore[arg-type]  # data plane only
        for number in range(frames):
            switch.inject(0, [frame("U", 1, tag=number)], now_us=number)
        switch.advance(10 * frames)
        arrived = [(when, seen(f).tag) for when, f in switch.drain_timed(1)]
        statistics = switch.statistics(1)
    return arrived, statistics


def about(expected: float) -> object:
    """Within five standard deviations of a binomial count of FRAMES draws."""
    return pytest.approx(expected, abs=5 * max(1.0, expected * (1 - expected / FRAMES)) ** 0.5)


@native
def test_loss_and_corruption_are_counted_apart() -> None:
    arrived, statistics = run(PortImpairments(tx=Impairments(loss=0.1, corrupt=0.05)))
    assert statistics.tx_lost == about(0.1 * FRAMES)
    assert statistics.tx_corrupted == about(0.9 * 0.05 * FRAMES)
    assert len(arrived) == statistics.tx_packets == FRAMES - statistics.tx_lost - statistics.tx_corrupted


@native
def test_losses_do_not_come_in_runs() -> None:
    arrived, _ = run(PortImpairments(tx=Impairments(loss=0.5)))
    kept = {number for _, number in arrived}
    after_a_loss = sum(n - 1 not in kept for n in kept if n)
    assert after_a_loss == pytest.approx(len(kept) / 2, rel=0.05)


@native
def test_duplicates() -> None:
    arrived, statistics = run(PortImpairments(tx=Impairments(duplicate=0.2)))
    assert statistics.tx_duplicated == about(0.2 * FRAMES)
    assert len(arrived) == FRAMES + statistics.tx_duplicated
    assert [n for _, n in arrived] == sorted(n for _, n in arrived)


@native
def test_reordered_frames_are_overtaken_and_others_keep_their_order() -> None:
    arrived, statistics = run(PortImpairments(tx=Impairments(reorder=0.1, reorder_s=50e-6, delay_s=20e-6)))
    assert len(arrived) == FRAMES
    assert statistics.tx_reordered == about(0.1 * FRAMES)
    assert [n for _, n in arrived] != list(range(FRAMES))
    in_order = [n for when, n in arrived if when == n + 20]
    assert in_order == sorted(in_order)
    late = [when - n - 20 for when, n in arrived if when != n + 20]
    assert 0.9 * statistics.tx_reordered <= len(late) <= statistics.tx_reordered  # some by less than 1 us
    assert min(late) > 0
    assert max(late) <= 50


@native
def test_jitter_keeps_order() -> None:
    arrived, _ = run(PortImpairments(tx=Impairments(delay_s=100e-6, jitter_s=30e-6)))
    assert [n for _, n in arrived] == list(range(FRAMES))
    delays = {when - n for when, n in arrived}
    assert min(delays) >= 100
    assert max(delays) <= 130
    assert len(delays) > 10


@native
def test_certainty_and_impossibility() -> None:
    assert run(PortImpairments(tx=Impairments(loss=1.0)), frames=100)[0] == []
    assert len(run(PortImpairments(), frames=100)[0]) == 100


@native
def test_a_seed_settles_everything() -> None:
    link = PortImpairments.parse("loss=0.1,duplicate=0.1,reorder=0.1,corrupt=0.1,delay=10us,jitter=5us")
    first = run(link, seed=1, frames=2000)
    assert run(link, seed=1, frames=2000) == first
    assert run(link, seed=2, frames=2000) != first


@native
def test_both_directions_and_all_ports_have_streams_of_their_own() -> None:
    seeds = {
        LinkModel.of(Impairments(seed=own), seed=7, port=port, direction=direction).seed
        for own in (None, 8)
        for port in range(4)
        for direction in ("rx", "tx")
    }
    assert len(seeds) == 16


def test_parse() -> None:
    both = Impairments(loss=0.05, delay_s=0.002, seed=3)
    assert PortImpairments.parse("loss=5%,delay=2ms,seed=3") == PortImpairments(rx=both, tx=both)
    assert PortImpairments.parse("tx.rate=1.5G,tx.queue=8, rx.loss=1e-3") == PortImpairments(
        rx=Impairments(loss=1e-3), tx=Impairments(rate_bps=1.5e9, queue_packets=8)
    )
    assert PortImpairments.parse("") == PortImpairments()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("los=0.1", "'los=0.1': want key=value with one of loss, duplicate"),
        ("loss", "'loss': want key=value"),
        ("xx.loss=0.1", "'xx.loss=0.1': want key=value"),
        ("loss=much", "'loss=much': want a number"),
        ("loss=1.2.3", "'loss=1.2.3': want a number"),
        ("delay=3min", "'delay=3min': want a number, may be with one of s, ms, us, ns"),
        ("queue=1.5", "'queue=1.5': want a whole number"),
        ("loss=1.5", "loss must be a probability, not 1.5"),
        ("queue=-1", "queue_packets must not be negative"),
    ],
)
def test_parse_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PortImpairments.parse(text)
