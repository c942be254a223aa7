"""Features and forests: what they are made of, how well they predict, and what they refuse."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schedulers.sharing import Blind, accuracy
from controller.policies.scheduling import ExtraMissing
from controller.policies.scheduling.sharing.forests import (
    CoRunProfiler,
    Forests,
    Model,
    choose,
    draw,
    grow,
    model_for,
    train,
)
from controller.policies.scheduling.sharing.pairs import (
    BadMeasurement,
    BadTraining,
    Load,
    NoisyInterference,
)
from tests import effort
from tests.controller.policies.scheduling.sharing.cases import KINDS, LAW, MANY, beside

SEEN, UNSEEN = sorted(MANY.kinds)[:18], sorted(MANY.kinds)[18:]
MEASURED = NoisyInterference(MANY, 0.02, seed=1)


@pytest.fixture(scope="module")
def forests() -> Forests:
    pytest.importorskip("sklearn")
    return train(CoRunProfiler(MEASURED, choose(MEASURED, 4, SEEN)), kinds=SEEN, samples=500, trees=30)


def test_a_profile_is_sensitivity_and_impact() -> None:
    profile = CoRunProfiler(LAW, ("compute", "light")).profile(Load("rude", 4))
    assert profile.sensitivity == (
        beside(LAW, "rude", 4, ("compute", 1)),
        beside(LAW, "rude", 4, ("light", 1)),
    )
    assert profile.impact == (beside(LAW, "compute", 1, ("rude", 4)), beside(LAW, "light", 1, ("rude", 4)))
    assert profile.features == profile.sensitivity + profile.impact


def test_reference_jobs_differ_and_their_number_is_checked() -> None:
    assert choose(LAW, 1)[0] in KINDS
    chosen = choose(LAW, 4)
    assert len(set(chosen)) == 4
    assert choose(LAW, 3) == chosen[:3]
    assert set(choose(LAW, len(KINDS))) == set(KINDS)
    for count in (0, -1, 7):
        with pytest.raises(BadMeasurement, match=f"{count} reference jobs of 6 kinds; 1 to 6 are possible"):
            choose(LAW, count)


def test_the_forest_predicts_as_scikit_learn_does() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x, y = rng.random((200, 5)), rng.random((200, 2))
    ours = grow(x.tolist(), y.tolist(), trees=7, seed=4)
    theirs = ensemble.RandomForestRegressor(
        n_estimators=7, min_samples_leaf=2, max_features=0.5, random_state=4
    )
    fresh = rng.random((50, 5))
    assert ours.predict(fresh.tolist()) == pytest.approx(theirs.fit(x, y).predict(fresh))
    single = grow([[1.0], [2.0]], [[3.0], [3.0]], trees=2)
    assert single.predict([[9.0]]).tolist() == [[3.0]]


def test_which_forest_answers_follows_from_the_sizes() -> None:
    one, two, four = (Load("light", gpus) for gpus in (1, 2, 4))
    assert model_for(one, [one]) is Model.SGCM
    assert model_for(four, [four]) is Model.DTCM
    assert model_for(four, [one, one]) is Model.DTSPM
    assert model_for(four, [one, two]) is Model.DTSPM
    assert model_for(one, [four]) is Model.SGSPM
    for load, others in ((one, []), (one, [one, one]), (two, [two, one]), (two, [one, one, one])):
        with pytest.raises(BadMeasurement, match="no model for"):
            model_for(load, others)


@pytest.mark.parametrize("model", Model)
def test_samples_are_what_their_model_is_about(model: Model) -> None:
    drawn = draw(LAW, model, 60, kinds=KINDS, sizes=(2, 4, 8), fresh=("frail",), seed=2)
    assert drawn == draw(LAW, model, 60, kinds=KINDS, sizes=(2, 4, 8), fresh=("frail",), seed=2)
    for sample in drawn:
        assert model_for(sample.load, sample.beside) is model
        assert sample.speeds[0] == LAW.speed(sample.load, sample.beside)
        assert "frail" in {sample.load.kind, *(other.kind for other in sample.beside)}
        if model in (Model.SGCM, Model.DTCM):
            assert sample.speeds[1] == LAW.speed(sample.beside[0], [sample.load])


def test_each_forest_beats_the_mean_on_kinds_that_it_has_not_seen(forests: Forests) -> None:
    for model in Model:
        old = accuracy(forests, draw(MANY, model, 200, kinds=SEEN, seed=8))
        new = accuracy(forests, draw(MANY, model, 200, kinds=sorted(MANY.kinds), fresh=UNSEEN, seed=9))
        assert old.mae < 0.04
        assert new.mae < 0.75 * new.mean_mae
        assert new.r2 > 0.4


@settings(max_examples=effort.cases(40), deadline=None)
@given(st.sampled_from(Model), st.integers(0, 10**6))
def test_predictions_are_in_range_and_pairs_have_no_order(forests: Forests, model: Model, seed: int) -> None:
    (sample,) = draw(MANY, model, 1, kinds=sorted(MANY.kinds), seed=seed)
    speed = forests.speed(sample.load, sample.beside)
    assert 0 < speed <= 1.1  # the measured ones are at most 1, and noise
    assert forests.speed(sample.load, sample.beside[::-1]) == speed
    assert forests.speed(sample.load, []) == 1


def test_singles_can_be_trained_on_by_themselves() -> None:
    pytest.importorskip("sklearn")
    forests = train(CoRunProfiler(LAW, choose(LAW, 2)), sizes=(), samples=50, trees=5)
    assert 0.2 < forests.speed(Load("light", 1), [Load("light", 1)]) <= 1


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: train(CoRunProfiler(LAW, ("light",)), samples=0), "0 samples of 6 kinds"),
        (lambda: train(CoRunProfiler(LAW, ("light",)), kinds=[], samples=100), "100 samples of 0 kinds"),
    ],
)
def test_bad_training_is_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(BadTraining, match=why):
        call()


def test_without_scikit_learn_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'ina\[schedulers\]'"):
        grow([[1.0]], [[1.0]])


def test_the_blind_say_the_mean() -> None:
    samples = {model: draw(LAW, model, 30, kinds=KINDS) for model in Model}
    blind = Blind.from_samples(KINDS, samples)
    mean = sum(s.speeds[0] for s in samples[Model.SGSPM]) / 30
    assert blind.speed(Load("rude", 1), [Load("frail", 8)]) == pytest.approx(mean)
    assert accuracy(blind, samples[Model.SGSPM]).r2 == pytest.approx(0)
