from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling import BadSpec
from controller.policies.scheduling.lucid.policy import (
    Candidate,
    LucidOptions,
    Sharing,
    choose,
    may_join,
    strategy,
)
from controller.policies.scheduling.lucid.usage import GpuUsage, Size

RULES = LucidOptions(gpu_memory_mb=24_000)


def job(
    size: Size = Size.TINY,
    *,
    gpus: int = 1,
    memory_mb: float = 3000,
    expected_s: float = 100,
    alone: bool = False,
) -> Candidate:
    return Candidate(gpus, size, GpuUsage(50, 20, memory_mb), expected_s, alone)


@pytest.mark.parametrize(
    ("newcomer", "partner", "sharing", "allowed"),
    [
        (job(), job(), Sharing.DEFAULT, True),
        (job(), job(), Sharing.OFF, False),
        (job(gpus=2), job(), Sharing.DEFAULT, False),
        (job(gpus=8), job(gpus=8), Sharing.DEFAULT, True),
        (job(gpus=16), job(gpus=16), Sharing.DEFAULT, False),
        (job(), job(alone=True), Sharing.DEFAULT, False),
        (job(memory_mb=12_000), job(memory_mb=11_999), Sharing.DEFAULT, True),
        (job(memory_mb=12_000), job(memory_mb=12_000), Sharing.DEFAULT, False),
        (job(Size.JUMBO), job(Size.TINY), Sharing.DEFAULT, True),
        (job(Size.JUMBO), job(Size.MEDIUM), Sharing.DEFAULT, False),
        (job(Size.MEDIUM), job(Size.MEDIUM), Sharing.DEFAULT, True),
        (job(Size.MEDIUM), job(Size.MEDIUM), Sharing.APATHETIC, False),
        (job(Size.MEDIUM), job(Size.TINY), Sharing.APATHETIC, True),
        (job(expected_s=200), job(expected_s=100), Sharing.DEFAULT, True),
        (job(expected_s=201), job(expected_s=100), Sharing.DEFAULT, False),
    ],
)
def test_the_rules(newcomer: Candidate, partner: Candidate, sharing: Sharing, allowed: bool) -> None:
    assert may_join(newcomer, partner, sharing, RULES) is allowed


candidates = st.builds(
    job,
    st.sampled_from(Size),
    gpus=st.sampled_from([1, 2, 8, 16]),
    memory_mb=st.floats(0, 30_000),
    expected_s=st.floats(0, 1e6),
    alone=st.booleans(),
)


@settings(deadline=None)
@given(candidates, candidates)
def test_less_sharing_never_allows_more(newcomer: Candidate, partner: Candidate) -> None:
    allowed = [
        may_join(newcomer, partner, s, RULES) for s in (Sharing.OFF, Sharing.APATHETIC, Sharing.DEFAULT)
    ]
    assert allowed == sorted(allowed)


@settings(deadline=None)
@given(candidates, st.lists(candidates, max_size=8))
def test_the_chosen_partner_is_allowed_and_the_smallest(
    newcomer: Candidate, partners: list[Candidate]
) -> None:
    allowed = [p for p in partners if may_join(newcomer, p, Sharing.DEFAULT, RULES)]
    best = choose(newcomer, partners, Sharing.DEFAULT, RULES)
    if not allowed:
        assert best is None
    else:
        assert best is not None
        assert partners[best] in allowed
        assert partners[best].size == min(p.size for p in allowed)


def test_among_equal_partners_the_one_that_stays_longest_is_chosen() -> None:
    partners = [
        job(expected_s=80),
        job(expected_s=500),
        job(Size.MEDIUM, expected_s=900),
        job(expected_s=500),
    ]
    assert choose(job(), partners, Sharing.DEFAULT, RULES) == 1


def test_sharing_relaxes_only_while_little_is_going_on_and_to_come() -> None:
    rules = LucidOptions(low=5.0, very_low=2.0)
    assert strategy(rules, now=1, forecast=[1, 2], idle=0.5) is Sharing.OFF
    assert strategy(rules, now=1, forecast=[1, 2], idle=0.0) is Sharing.APATHETIC
    assert strategy(rules, now=1, forecast=[1, 4], idle=0.5) is Sharing.APATHETIC
    assert strategy(rules, now=1, forecast=[1, 9], idle=0.5) is Sharing.DEFAULT
    assert strategy(rules, now=9, forecast=[], idle=0.5) is Sharing.DEFAULT


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"low": 2.0, "very_low": 3.0}, r"very_low is 3\.0 and low is 2\.0"),
        ({"profile_s": 10.0, "burst_s": 20.0}, r"burst_s is 20\.0; want at most profile_s, 10\.0 s"),
        ({"patience": 0.0}, r"setting patience=0: want 0\.01 to"),
        ({"profiler_nodes": -1}, "setting profiler_nodes=-1: want 0 to 1000"),
    ],
)
def test_options_out_of_range_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadSpec, match=complaint):
        LucidOptions(**wrong)
