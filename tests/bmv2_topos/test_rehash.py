from __future__ import annotations

import doctest
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmv2_topos import JobEntry
from bmv2_topos.experiments import rehash, rehash_model
from bmv2_topos.experiments.rehash_model import SCHEMES, ModelJob, Scheme, simulate, slot_of
from bmv2_topos.testbeds.virtual import VirtualSettings, VirtualTestbed, build

JOB = ModelJob(packets=2048, tensor=512, skew=40.0)
HOLDER = ModelJob(packets=512, tensor=512, window=128, skew=8000.0, compute=2000.0)


def test_the_examples_in_the_documentation_hold() -> None:
    assert doctest.testmod(rehash_model).failed == 0


def test_slots_are_those_of_the_switch() -> None:
    """One worker of two sends; the compiled program's slots hold its packets where the model says."""
    slots, packets = 64, 16
    job = JobEntry(
        name="a", workers=2, iterations=1, tensors=(32 * packets,), compute_s=0.0, window=4 * packets,
        numbers="fixed",
    )  # fmt: skip
    topology, placements = build([job], servers=True)
    settings = VirtualSettings(lanes=32, slots=slots, samples=0)
    testbed = VirtualTestbed(topology, [job], placements, settings)
    testbed.run()
    read = testbed.fabric.pipelines["s1"].read_register
    prefix = "InaIngress.aggregator.slot_"
    found = {read(f"{prefix}psn", index): index for index in range(slots) if read(f"{prefix}bitmap", index)}
    assert len(found) > packets / 2
    assert found == {psn: slot_of(1, psn, slots) for psn in found}


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**26 - 1), st.integers(8, 13))
def test_a_window_of_consecutive_numbers_does_not_meet_itself(job: int, block: int, bits: int) -> None:
    """What linearity gives: 64 numbers from a multiple of 64 have slots of their own, of 256 or more."""
    assert len({slot_of(job, 64 * block + i, 1 << bits) for i in range(64)}) == 64


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_run_ends_and_says_the_same_each_time(scheme: Scheme) -> None:
    jobs = (JOB, JOB, HOLDER)
    outcomes = simulate(jobs, scheme, slots=128, seed=3)
    assert outcomes == simulate(jobs, scheme, slots=128, seed=3)
    for job, outcome in zip(jobs, outcomes, strict=True):
        assert outcome.packets == job.packets
        assert 0 <= outcome.again <= outcome.after <= outcome.collided <= job.packets
        # The link, and the way there and back for each iteration, bound it from below.
        assert outcome.duration >= job.packets + 50 * job.packets / job.tensor


def test_a_run_of_less_than_whole_iterations_ends() -> None:
    """It went on for ever: packets were sent up to the end of the iteration, and so of the next."""
    (outcome,) = simulate((ModelJob(packets=300, tensor=512, window=64),), "fresh", slots=128)
    assert outcome.packets == 300
    assert 300 < outcome.duration < 1000


def test_with_one_slot_all_but_one_packet_at_a_time_collide_and_share_a_link() -> None:
    (outcome,) = simulate((JOB,), "fresh", slots=1)
    assert outcome.collided > outcome.packets / 2
    assert outcome.duration > 8 * outcome.collided


def test_random_slots_collide_as_often_as_chance_has_it() -> None:
    """Of packets that all meet as many others on average, that share of the slots finds itself taken."""
    jobs = (ModelJob(packets=8192, tensor=8192, skew=40.0),)
    (outcome,) = simulate(jobs, "random", slots=256)
    held = 40 / 2 * outcome.packets / outcome.duration
    assert outcome.share == pytest.approx(held / 256, rel=0.2)
    assert outcome.persistence == pytest.approx(outcome.share, rel=0.5)


def test_collisions_persist_where_positions_keep_their_slots_and_rehashing_ends_them() -> None:
    beside = {scheme: simulate((JOB, HOLDER), scheme, slots=256)[0] for scheme in SCHEMES}
    persistence = {scheme: outcome.persistence or 0.0 for scheme, outcome in beside.items()}
    assert persistence["kept"] > 0.7
    assert persistence["rehashed"] < 0.7 * persistence["kept"]
    assert beside["rehashed"].collided < 0.5 * beside["kept"].collided


def test_equal_chances_need_a_hash_that_spreads() -> None:
    draw = random.Random(1)
    counts = Counter(slot_of(draw.randrange(1, 9), draw.randrange(1 << 20), 100) for _ in range(20_000))
    assert len(counts) == 100
    assert max(counts.values()) < 1.5 * min(counts.values())


def test_the_page_and_its_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rehash.main(["--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["scheme"] for row in rows} == set(SCHEMES)
    assert {row["case"] for row in rows} == set(rehash.CASES)
    rehash.write(rows, tmp_path)
    assert json.loads((tmp_path / "rehash.json").read_text())["rows"] == rows
    page = (tmp_path / "rehash.md").read_text()
    for row in rows:
        assert f"{row['time']:.2f}" in page
    for case in rehash.CASES:
        assert f"### {case.capitalize()}" in page
        assert f"- {case}: rehashing makes it" in page
