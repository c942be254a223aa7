"""Training programs on the host library, as examples and for measurements.

- `digits`: a perceptron on handwritten digits, for `ina demo`;
- `four_stages`: jobs whose stages take turns, for `ina schedule interleave`;
- `steps`: a rank of a job of a scenario.

They are installed, so that the commands work without a checkout; ``examples/`` runs them under shorter names.
"""
