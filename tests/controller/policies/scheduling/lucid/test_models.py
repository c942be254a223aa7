"""Additive models, and the two predictors that are made of them. Each model is trained once: that is slow."""

import math
import random
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from controller.policies.scheduling.lucid import estimates as durations_module
from controller.policies.scheduling.lucid.estimates import DurationModel, JobFacts, train_durations
from controller.policies.scheduling.lucid.usage import (
    AdditiveModel,
    BadSample,
    Boosting,
    GpuUsage,
    train,
    train_throughput,
)
from controller.policies.scheduling.lucid.usage import features as throughput_features
from tests.controller.policies.scheduling.lucid.made_up import make_counts, make_history
from tests.extras import needs

pytestmark = needs("interpret")

FEATURES = ("hour", "user", "gpus")


def rows(count: int, seed: int = 0) -> list[tuple[float | None, str, float]]:
    rng = random.Random(seed)
    return [
        (None if rng.random() < 0.05 else rng.uniform(0, 24), rng.choice("abc"), float(rng.randint(1, 8)))
        for _ in range(count)
    ]


def target(row: tuple[float | None, str, float]) -> float:
    hour, user, gpus = row
    return math.sin((hour or 0) / 4) + 2 * (user == "b") + 0.5 * gpus + (user == "c") * 0.1 * (hour or 0)


@pytest.fixture(scope="module")
def trained() -> AdditiveModel:
    cases = rows(240)
    boosting = Boosting(interactions=1, max_rounds=100, bags=2, seed=1)
    return train(FEATURES, cases, [target(case) for case in cases], boosting, categories=["user"])


def test_a_model_predicts_like_jobs_and_unseen_categories(
    trained: AdditiveModel,
) -> None:
    off = [abs(trained.predict(case) - target(case)) for case in rows(60, seed=2)]
    assert sum(off) / len(off) < 0.5
    assert math.isfinite(trained.predict((None, "unseen", 1.0)))


def test_an_explanation_adds_up_to_the_prediction(trained: AdditiveModel) -> None:
    model = trained
    for case in rows(20, seed=3):
        parts = model.explain(case)
        assert model.intercept + sum(p.score for p in parts) == pytest.approx(model.predict(case))
        assert [abs(p.score) for p in parts] == sorted((abs(p.score) for p in parts), reverse=True)


def test_shapes_show_what_matters(trained: AdditiveModel) -> None:
    model = trained
    user = dict(model.shape("user"))
    assert max(user, key=lambda name: user[name]) == "b"
    gpus = [score for _, score in model.shape("gpus")]
    assert gpus[0] < gpus[-1]


def test_a_shape_that_may_only_rise_does_and_the_rest_stays() -> None:
    cases = rows(240)
    shapes = []
    for rising in ([], ["hour"]):
        model = train(
            FEATURES,
            cases,
            [target(case) for case in cases],
            Boosting(max_rounds=100, bags=1),
            categories=["user"],
            rising=rising,
        )
        shapes.append((model.shape("gpus"), [score for _, score in model.shape("hour")]))
    assert any(b < a for a, b in pairwise(shapes[0][1]))
    assert all(b >= a - 1e-12 for a, b in pairwise(shapes[1][1]))
    assert shapes[0][0] == shapes[1][0]


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(BadSample, match="9 samples with 9 targets; want equal numbers, 10 or more"):
        train(("x",), [(1.0,)] * 9, [1.0] * 9, Boosting())


@pytest.fixture(scope="module")
def duration_model() -> DurationModel:
    jobs, seconds = make_history(400, seed=1)
    return train_durations(jobs, seconds, Boosting(max_rounds=2000, bags=1), common_names=0)


def test_recurring_jobs_are_predicted_far_better_than_by_the_mean(duration_model: DurationModel) -> None:
    jobs, seconds = make_history(500, seed=1)
    fresh = list(zip(jobs, seconds, strict=True))[400:]
    mean_log = math.fsum(math.log(s) for s in seconds[:400]) / 400
    error = [abs(math.log(duration_model.predict_s(job)) - math.log(s)) for job, s in fresh]
    blunt = [abs(mean_log - math.log(s)) for _, s in fresh]
    assert sum(error) < 0.5 * sum(blunt)


def test_a_new_user_gets_the_mean_of_equal_gpu_counts(duration_model: DurationModel) -> None:
    job = JobFacts("nobody", "x", "vc", 8, 0.0)
    assert duration_model.predict_s(job) == duration_model.means_s[8]
    assert "user nobody is new" in duration_model.explain(job)[0]
    odd = JobFacts("nobody", "x", "vc", 3, 0.0)
    assert duration_model.predict_s(odd) == duration_model.mean_s


def test_factors_of_an_explanation_multiply_to_the_prediction(duration_model: DurationModel) -> None:
    job = make_history(5, seed=1)[0][4]
    lines = duration_model.explain(job)
    assert lines[-1] == f"together: {duration_model.predict_s(job):.0f} s"
    product = math.exp(duration_model.model.intercept)
    for line in lines[1:-1]:
        product *= float(line.rsplit("x ", 1)[1])
    assert product == pytest.approx(duration_model.predict_s(job), rel=0.02)


def test_profiled_usage_and_time_are_features() -> None:
    when = datetime(2024, 5, 6, 13, tzinfo=UTC).timestamp()  # a Monday
    names = durations_module.bucket_names(["a"], most_common=1)
    job = JobFacts("u", "a", "vc", 2, when, GpuUsage(40, 20, 1000, True))
    assert durations_module.features(job, names) == ("u", "0", "vc", 2.0, 5.0, 0.0, 13.0, 40, 20, 1000, 1.0)
    bare = JobFacts("u", "never-seen", "vc", 2, when)
    assert durations_module.features(bare, names)[1] is None
    assert durations_module.features(bare, names)[-4:] == (None,) * 4


def test_the_daily_pattern_is_learned() -> None:
    counts = make_counts(6)
    day = 144
    model = train_throughput(counts[: 5 * day], 0.0, Boosting(max_rounds=150, bags=1))
    predicted = model.predict(counts[: 5 * day], 5 * 86400.0, steps=day)
    actual = counts[5 * day :]
    assert len(predicted) == day
    assert all(p >= 0 for p in predicted)
    mean = sum(counts[: 5 * day]) / (5 * day)
    error = sum((p - a) ** 2 for p, a in zip(predicted, actual, strict=True))
    blunt = sum((mean - a) ** 2 for a in actual)
    assert error < 0.7 * blunt


def test_features_look_back_and_never_ahead() -> None:
    when = datetime(2024, 5, 6, 13, 20, tzinfo=UTC)
    counts = [float(i) for i in range(200)]
    found = throughput_features(counts, when)
    assert found[:3] == (0.0, 13.0, 20.0)
    assert found[3:6] == (counts[-6], counts[-18], counts[-144])
    assert found[9:] == (196.5, 196.5, pytest.approx(1.7078, abs=1e-4))
    assert found[6] > 196.5  # recent counts weigh more
    assert throughput_features([], when)[3:] == (None,) * 9
    assert throughput_features([5.0], when)[3:6] == (None,) * 3
