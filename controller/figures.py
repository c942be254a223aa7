"""Matplotlib figures (Matplotlib is optional): created and saved the same way by all commands that draw.

Equal plots give equal SVG files, which store text as text and not as outlines. This module uses neither
``matplotlib.pyplot`` nor a display.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from controller.errors import ControllerError

FORMATS: Final = (".svg", ".png", ".pdf")
WIDTH = 6.4


class PlotsMissing(ControllerError):
    """Matplotlib is not installed; the message says how to install it."""

    def __init__(self) -> None:
        super().__init__("plots need matplotlib: pip install 'ina[plots]'")


def check() -> None:
    """Raise PlotsMissing unless plots can be drawn."""
    try:
        import matplotlib  # noqa: F401 - only whether it is there
    except ImportError:
        raise PlotsMissing from None


def new_figure(panels: int, *, height: float = 2.2, margin: float = 1.2) -> tuple[Any, Sequence[Any]]:
    """Return a figure and the axes of its panels, one below the other. Raises PlotsMissing.

    `height` is the height of each panel, `margin` the height of the figure without panels; both in inches.
    """
    figure = blank(WIDTH, margin + height * panels)
    return figure, list(figure.subplots(panels, 1, squeeze=False)[:, 0])


def blank(width: float, height: float) -> Any:
    """Return an empty figure of this size, in inches. Raises PlotsMissing."""
    check()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "ina"  # the same plot is the same file
    matplotlib.rcParams["svg.fonttype"] = "none"  # text is stored as text: small files, and searchable
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path) -> None:
    """Write the figure to `path`, in the format of its suffix (`FORMATS`); create missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
