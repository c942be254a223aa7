"""The model of what a rank computes when, by hand-made timelines."""

from __future__ import annotations

import random

from bmv2_topos.testbeds.virtual.worker import Training
from hostlib.core.state import NEVER


def training(layers: int, iterations: int, compute_ns: int) -> Training:
    return Training(
        layers=layers,
        iterations=iterations,
        compute_ns=compute_ns,
        forward_share=1 / 3,
        jitter=0.0,
        random=random.Random(0),
    )


def test_tensors_become_ready_back_to_front_during_the_backward_pass() -> None:
    model = training(layers=2, iterations=1, compute_ns=600)
    model.start(1000)
    ready = []
    for now in range(1000, 1700, 50):
        model.advance(now)
        ready += [(now, model.ready.popleft()) for _ in range(len(model.ready))]
    assert ready == [(1400, 1), (1600, 0)]  # forward 100 each, backward 200 each


def test_the_next_forward_pass_waits_for_each_layer_it_enters() -> None:
    model = training(layers=2, iterations=2, compute_ns=600)
    model.start(0)
    model.advance(600)
    assert list(model.ready) == [1, 0]
    assert model.due == NEVER
    model.summed(1, 700)
    assert model.due == NEVER  # the front layer is still missing
    model.summed(0, 800)
    assert model.done == 1
    assert model.due == 900
    model.advance(900)
    assert model.due == 1000  # layer 1 was summed long ago
    model.advance(10_000)
    assert list(model.ready) == [1, 0, 1, 0]


def test_the_last_iteration_ends_with_its_last_sum() -> None:
    model = training(layers=1, iterations=1, compute_ns=0)
    model.start(5)
    model.advance(5)
    assert list(model.ready) == [0]
    assert not model.finished
    model.summed(0, 9)
    assert model.finished
    assert model.due == NEVER


def test_a_restart_begins_with_the_first_iteration_that_is_not_done() -> None:
    model = training(layers=1, iterations=3, compute_ns=300)
    model.done = 2
    model.start(0)
    model.advance(300)
    model.summed(0, 400)
    assert model.finished
