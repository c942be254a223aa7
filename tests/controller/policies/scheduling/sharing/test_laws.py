"""What interference is: pairs, jobs of several GPUs, measurements of them, and the speed model."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.scheduling import BadTrace, Group
from controller.policies.scheduling.sharing.pairs import (
    BadMeasurement,
    InterferenceSpeed,
    KindDemand,
    Load,
    MadeUpPairs,
    MeasuredPairs,
    NoisyInterference,
    make_demands,
    read_gavel_pairs,
    read_lucid_pairs,
)
from controller.policies.scheduling.speed import PreemptionCost
from tests.controller.policies.scheduling.sharing.cases import KINDS, LAW, PAIRS, beside, job

kinds = st.sampled_from(KINDS)


def test_two_jobs_that_only_compute_take_turns() -> None:
    pairs = MadeUpPairs({"c": KindDemand(1.0, 0.0, 0.0), "h": KindDemand(0.0, 0.0, 1.0)})
    assert pairs.beside("c", "c") == 0.5
    assert pairs.beside("c", "h") == 1.0


def test_sensitivity_and_impact_are_different_things() -> None:
    assert PAIRS.beside("frail", "compute") < PAIRS.beside("compute", "frail")
    assert PAIRS.beside("compute", "rude") < PAIRS.beside("rude", "compute")


@given(kinds, kinds, st.sampled_from([1, 2, 4, 8, 16]))
def test_speeds_are_in_range_and_syncing_leaves_room(kind: str, other: str, gpus: int) -> None:
    on_one = beside(LAW, kind, 1, (other, 1))
    assert on_one == pytest.approx(PAIRS.beside(kind, other))
    assert 0 < on_one <= 1
    # a small job in a large one meets it only while that computes
    assert on_one - 1e-12 <= beside(LAW, kind, 1, (other, gpus)) <= 1


@given(kinds, st.lists(kinds, min_size=1, max_size=8))
def test_more_neighbours_slow_a_large_job_no_less(kind: str, guests: list[str]) -> None:
    speeds = [beside(LAW, kind, 8, *((g, 1) for g in guests[:n])) for n in range(len(guests) + 1)]
    assert speeds[0] == 1
    assert speeds == sorted(speeds, reverse=True)
    shuffled = beside(LAW, kind, 8, *((g, 1) for g in reversed(guests)))
    assert shuffled == pytest.approx(speeds[-1])


def test_made_up_demands_are_repeatable_and_sound() -> None:
    names = [f"k{n}" for n in range(50)]
    assert make_demands(names, seed=3) == make_demands(names, seed=3)
    assert make_demands(names, seed=3) != make_demands(names, seed=4)


def test_noise_is_the_same_whenever_it_is_asked() -> None:
    noisy = NoisyInterference(LAW, 0.1, seed=1)
    a, b = Load("memory", 4), [Load("rude", 1), Load("host", 1)]
    assert noisy.speed(a, b) == noisy.speed(a, b[::-1]) != LAW.speed(a, b)
    assert noisy.speed(a, b) != NoisyInterference(LAW, 0.1, seed=2).speed(a, b)
    assert NoisyInterference(LAW, 0.0).speed(a, b) == LAW.speed(a, b)
    assert noisy.speed(a, []) == 1


def test_kinds_without_all_partners_are_left_out() -> None:
    speeds = {(a, b): 0.9 for a in "abc" for b in "abc"} | {("a", "d"): 0.5, ("d", "a"): 0.5}
    pairs = MeasuredPairs(speeds)
    assert pairs.kinds == ("a", "b", "c")
    with pytest.raises(BadMeasurement, match=r"a beside b has speed -1\.0; it must not be negative"):
        MeasuredPairs({("a", "b"): -1.0})
    with pytest.raises(BadMeasurement, match="2 pairs, but no kind"):
        MeasuredPairs({("a", "b"): 0.5, ("b", "a"): 0.5})


def test_public_pair_files_are_read(tmp_path: Path) -> None:
    lucid = tmp_path / "pairs.csv"
    head = "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n"
    lucid.write_text(head + "a,d,8,0,0.9,b,d,8,1,0.8\na,d,8,0,0.6,a,d,8,0,0.7\nb,d,8,1,0.5,b,d,8,1,0.5\n")
    pairs = read_lucid_pairs(lucid)
    assert set(pairs.kinds) == {"a/d/8/fp", "b/d/8/amp"}
    assert pairs.beside("b/d/8/amp", "a/d/8/fp") == 0.8
    gavel = tmp_path / "throughputs.json"
    one, two = "('m', 1)", "('n', 1)"
    rows = {
        one: {"null": 10.0, one: [4.0, 4.0], two: [8.0, 1.0]},
        two: {"null": 2.0, two: [1.0, 1.0]},
        "('m', 2)": {"null": 19.0, one: [0.0, 0.0]},
    }
    gavel.write_text(json.dumps({"v100": rows}))
    assert read_gavel_pairs(gavel).beside("m", "n") == 0.8
    assert read_gavel_pairs(gavel).beside("n", "m") == 0.5
    for text in ("[]", "{", '{"v100": {"x": 1}}', json.dumps({"k80": rows})):
        gavel.write_text(text)
        with pytest.raises(BadTrace, match=r"throughputs.json: column v100: not a table"):
            read_gavel_pairs(gavel)


def test_the_speed_model_knows_members_neighbours_and_restarts() -> None:
    speed = InterferenceSpeed(LAW, cost=PreemptionCost(40, 60, node_gpus=4))
    a, b, wide = job("a", "rude"), job("b", "frail", order=1), job("w", "memory", order=2, gpus=8)
    pair = speed.iteration_s(Group((a, b), (0,)))
    assert pair == pytest.approx([1 / PAIRS.beside("rude", "frail"), 1 / PAIRS.beside("frail", "rude")])
    (host,) = speed.iteration_s(Group((wide,), tuple(range(8)), neighbours=(a, b)))
    assert host == pytest.approx(1 / beside(LAW, "memory", 8, ("rude", 1), ("frail", 1)))
    assert speed.iteration_s(Group((a,), (0,))) == [1.0]
    assert speed.restart_s(Group((wide,), tuple(range(8)))) == [0.0]
    wide.starts = a.starts = 1
    assert speed.restart_s(Group((wide,), tuple(range(8)))) == [60.0]
    assert speed.restart_s(Group((a, b), (0,))) == [40.0, 0.0]
