from pathlib import Path

import pytest

from controller.policies.scheduling.lucid.usage import AdditiveModel, Boosting, draw_shapes, train
from tests.extras import needs

pytestmark = [needs("matplotlib"), needs("interpret")]


@pytest.fixture(scope="module")
def model() -> AdditiveModel:
    cases = [(float(number % 24), "ab"[number % 2]) for number in range(60)]
    boosting = Boosting(max_rounds=20, bags=1)
    return train(("hour", "user"), cases, [hour for hour, _ in cases], boosting, categories=["user"])


def test_shapes_are_drawn_one_panel_each(model: AdditiveModel, tmp_path: Path) -> None:
    draw_shapes(model, tmp_path / "all.svg")
    assert (tmp_path / "all.svg").read_text().count('id="axes_') == 2
