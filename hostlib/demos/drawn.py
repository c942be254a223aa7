"""Digits drawn by a program, for installations without scikit-learn and its handwritten ones.

Each is a glyph of 5x7 pixels, at one of four places in a picture of 8x8, brighter or darker, and noisy, so
that a network has something to learn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

PICTURES = 1797
"""As many as the handwritten ones."""

_GLYPHS = (
    ".###. #...# #...# #...# #...# #...# .###.",
    "..#.. .##.. ..#.. ..#.. ..#.. ..#.. .###.",
    ".###. #...# ....# ...#. ..#.. .#... #####",
    "####. ....# ....# .###. ....# ....# ####.",
    "...#. ..##. .#.#. #..#. ##### ...#. ...#.",
    "##### #.... ####. ....# ....# #...# .###.",
    ".###. #.... #.... ####. #...# #...# .###.",
    "##### ....# ...#. ..#.. ..#.. .#... .#...",
    ".###. #...# #...# .###. #...# #...# .###.",
    ".###. #...# #...# .#### ....# ....# .###.",
)
_NOISE = 0.2


def draw() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return the same pictures (n, 64), scaled to 0..1, and their labels (n,) each time."""
    random = np.random.default_rng(0)
    glyphs = np.array(
        [[[dot == "#" for dot in row] for row in glyph.split()] for glyph in _GLYPHS], np.float64
    )
    labels = random.integers(0, 10, PICTURES)
    pictures = np.zeros((PICTURES, 8, 8))
    for picture, label in zip(pictures, labels, strict=True):
        down, right = random.integers(0, 2), random.integers(1, 3)
        picture[down : down + 7, right : right + 5] = glyphs[label] * random.uniform(0.6, 1.0)
    pictures += random.normal(0.0, _NOISE, pictures.shape)
    return pictures.clip(0, 1).reshape(PICTURES, 64).astype(np.float32), labels
