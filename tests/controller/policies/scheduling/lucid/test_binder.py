import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling import BadSpec
from controller.policies.scheduling.lucid.binder import (
    BinderRules,
    Candidate,
    Refusal,
    Sharing,
    choose,
    refusal,
    strategy,
)
from controller.policies.scheduling.lucid.usage import Size, Usage

RULES = BinderRules(gpu_memory_mb=24_000, node_gpus=8)


def job(
    size: Size = Size.TINY,
    *,
    gpus: int = 1,
    memory_mb: float = 3000,
    expected_s: float = 100,
    unstable: bool = False,
    alone: bool = False,
) -> Candidate:
    return Candidate(gpus, size, Usage(50, 20, memory_mb), expected_s, unstable, alone)


@pytest.mark.parametrize(
    ("newcomer", "partner", "sharing", "reason"),
    [
        (job(), job(), Sharing.DEFAULT, None),
        (job(), job(), Sharing.OFF, Refusal.OFF),
        (job(gpus=2), job(), Sharing.DEFAULT, Refusal.GPUS),
        (job(gpus=8), job(gpus=8), Sharing.DEFAULT, None),
        (job(gpus=16), job(gpus=16), Sharing.DEFAULT, Refusal.DISTRIBUTED),
        (job(unstable=True), job(), Sharing.DEFAULT, Refusal.UNSTABLE),
        (job(), job(alone=True), Sharing.DEFAULT, Refusal.ALONE),
        (job(memory_mb=12_000), job(memory_mb=11_999), Sharing.DEFAULT, None),
        (job(memory_mb=12_000), job(memory_mb=12_000), Sharing.DEFAULT, Refusal.MEMORY),
        (job(Size.JUMBO), job(Size.TINY), Sharing.DEFAULT, None),
        (job(Size.JUMBO), job(Size.MEDIUM), Sharing.DEFAULT, Refusal.SCORE),
        (job(Size.MEDIUM), job(Size.MEDIUM), Sharing.DEFAULT, None),
        (job(Size.MEDIUM), job(Size.MEDIUM), Sharing.APATHETIC, Refusal.SCORE),
        (job(Size.MEDIUM), job(Size.TINY), Sharing.APATHETIC, None),
        (job(expected_s=200), job(expected_s=100), Sharing.DEFAULT, None),
        (job(expected_s=201), job(expected_s=100), Sharing.DEFAULT, Refusal.TIME),
    ],
)
def test_the_rules(newcomer: Candidate, partner: Candidate, sharing: Sharing, reason: Refusal | None) -> None:
    assert refusal(newcomer, partner, sharing, RULES) is reason


candidates = st.builds(
    job,
    st.sampled_from(Size),
    gpus=st.sampled_from([1, 2, 8, 16]),
    memory_mb=st.floats(0, 30_000),
    expected_s=st.floats(0, 1e6),
    unstable=st.booleans(),
    alone=st.booleans(),
)


@settings(deadline=None)
@given(candidates, candidates)
def test_less_sharing_never_allows_more(newcomer: Candidate, partner: Candidate) -> None:
    allowed = [
        refusal(newcomer, partner, s, RULES) is None
        for s in (Sharing.OFF, Sharing.APATHETIC, Sharing.DEFAULT)
    ]
    assert allowed == sorted(allowed)


@settings(deadline=None)
@given(candidates, st.lists(candidates, max_size=8))
def test_the_chosen_partner_is_allowed_and_the_smallest(
    newcomer: Candidate, partners: list[Candidate]
) -> None:
    allowed = [p for p in partners if refusal(newcomer, p, Sharing.DEFAULT, RULES) is None]
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
    limits = {"low": 5.0, "very_low": 2.0}
    assert strategy(now=1, forecast=[1, 2], idle=0.5, **limits) is Sharing.OFF
    assert strategy(now=1, forecast=[1, 2], idle=0.0, **limits) is Sharing.APATHETIC
    assert strategy(now=1, forecast=[1, 4], idle=0.5, **limits) is Sharing.APATHETIC
    assert strategy(now=1, forecast=[1, 9], idle=0.5, **limits) is Sharing.DEFAULT
    assert strategy(now=9, forecast=[], idle=0.5, **limits) is Sharing.DEFAULT
    with pytest.raises(BadSpec, match="thresholds 3 and 2"):
        strategy(now=1, forecast=[], idle=0, low=2, very_low=3)


@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_bad_rules_are_refused(value: float) -> None:
    with pytest.raises(BadSpec, match="have to be positive"):
        BinderRules(gpu_memory_mb=value, node_gpus=8)
