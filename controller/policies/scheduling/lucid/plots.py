"""Plots of what additive models have learned: shape functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from controller.figures import new_figure, save
from controller.policies.scheduling.lucid.additive import AdditiveModel
from controller.policies.scheduling.lucid.errors import BadSample


def draw_shapes(model: AdditiveModel, path: Path, *, features: Sequence[str] = ()) -> None:
    """Draw the shape functions of these features, or of all that have one, below each other.

    Raises PlotsMissing, BadSample for a feature that has none.
    """
    single = [name for name in model.importances() if " x " not in name]
    wanted = list(features) or single
    if not wanted:
        raise BadSample("the model has no term of one feature to draw")
    shapes = [model.shape(name) for name in wanted]
    figure, panels = new_figure(len(wanted))
    for name, shape, panel in zip(wanted, shapes, panels, strict=True):
        labels, scores = [_plain(label) for label, _ in shape], [score for _, score in shape]
        panel.axhline(0, color="0.8", linewidth=0.8)
        if "-inf" in labels:
            starts = [float(label) for label in labels[1:]]
            first = starts[0] - (starts[-1] - starts[0] or 1.0) * 0.05 if starts else 0.0
            panel.step([first, *starts], scores, where="post")
        else:
            panel.bar(labels, scores)
        panel.set_xlabel(name)
        panel.set_ylabel("score")
    save(figure, path)


def _plain(label: str) -> str:
    return label.replace("$", r"\$")  # no formula
