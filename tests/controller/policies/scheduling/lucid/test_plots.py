from pathlib import Path
from types import SimpleNamespace

import pytest

from controller.policies.scheduling.lucid.usage import AdditiveModel, BadSample, Boosting, draw_shapes, train
from tests.extras import needs

pytestmark = [needs("matplotlib"), needs("interpret")]


@pytest.fixture(scope="module")
def model() -> AdditiveModel:
    cases = [(float(number % 24), "ab"[number % 2]) for number in range(60)]
    boosting = Boosting(max_rounds=20, bags=1)
    return train(("hour", "user"), cases, [hour for hour, _ in cases], boosting, categories=["user"])


def test_shapes_are_drawn_one_panel_each(model: AdditiveModel, tmp_path: Path) -> None:
    draw_shapes(model, tmp_path / "all.svg")
    draw_shapes(model, tmp_path / "one.svg", features=["user"])
    both, one = (tmp_path / "all.svg").read_text(), (tmp_path / "one.svg").read_text()
    assert both.count('id="axes_') == 2
    assert one.count('id="axes_') == 1


def test_what_cannot_be_drawn_is_refused(model: AdditiveModel, tmp_path: Path) -> None:
    with pytest.raises(BadSample, match="no term of 'gpus' alone"):
        draw_shapes(model, tmp_path / "x.svg", features=["gpus"])
    with pytest.raises(BadSample, match="no term of one feature"):
        draw_shapes(AdditiveModel(("x",), (), SimpleNamespace(term_features_=[])), tmp_path / "x.svg")
    assert not list(tmp_path.iterdir())
