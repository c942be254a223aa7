from pathlib import Path

import pytest

from controller.policies.scheduling.lucid.additive import AdditiveModel, Axis, Term, draw_shapes
from controller.policies.scheduling.lucid.usage import BadSample
from tests.extras import needs

pytestmark = needs("matplotlib")

MODEL = AdditiveModel(
    ("hour", "user"),
    1.0,
    (
        Term((Axis(0, cuts=(6.0, 18.0)),), ((0,), (-1,), (2,), (0.5,), (0,)), ((0,), (5,), (6,), (3,), (0,))),
        Term((Axis(1, rows={"a": 1, "b": 2}),), ((0,), (1,), (-1,), (0,)), ((0,), (4,), (4,), (0,))),
    ),
)


def test_shapes_are_drawn_one_panel_each(tmp_path: Path) -> None:
    draw_shapes(MODEL, tmp_path / "all.svg")
    draw_shapes(MODEL, tmp_path / "one.svg", features=["user"])
    both, one = (tmp_path / "all.svg").read_text(), (tmp_path / "one.svg").read_text()
    assert both.count('id="axes_') == 2
    assert one.count('id="axes_') == 1


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSample, match="no term of 'gpus' alone"):
        draw_shapes(MODEL, tmp_path / "x.svg", features=["gpus"])
    with pytest.raises(BadSample, match="no term of one feature"):
        draw_shapes(AdditiveModel(("x",), 0.0, ()), tmp_path / "x.svg")
    assert not list(tmp_path.iterdir())
