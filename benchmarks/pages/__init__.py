"""Published results, one experiment a module: ``ina experiment benchmarks.pages.loss``, in a clone.

`index` has them by name, and ``python -m benchmarks.pages`` runs them by name.
"""

from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
"""Folder of the published pages."""
