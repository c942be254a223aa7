"""Training programs on the host library, to read, to run and to measure with.

- `digits`: a perceptron on handwritten digits, what `ina demo` trains;
- `four_stages`: jobs whose stages take turns, what `ina schedule interleave` runs.

They are installed, so the commands find them without a checkout; ``examples/`` runs them under shorter names.
"""
