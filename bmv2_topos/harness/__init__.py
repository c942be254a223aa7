"""Experiments as data, and the tool that runs them: ``ina experiment own.py``.

A `Study` is enough for most experiments: a function, the parameters to sweep, the quantities to measure.
`model` defines any experiment, `load` finds one, `sweep` runs it in parallel processes, `page` writes its
rows, its page and its plots; `rows` has helpers for tables.
"""

from bmv2_topos.harness.errors import BadExperiment, HarnessError, RunFailed
from bmv2_topos.harness.load import load
from bmv2_topos.harness.model import (
    Call,
    Experiment,
    Measure,
    Run,
    columns,
    mean_iteration_s,
    with_seeds,
)
from bmv2_topos.harness.page import read, write
from bmv2_topos.harness.rows import (
    ResultRow,
    Value,
    column,
    grouped,
    markdown,
    number,
    selected,
    spread,
)
from bmv2_topos.harness.study import Study
from bmv2_topos.harness.sweep import Difference, compare, named, sweep
from bmv2_topos.scenarios.model import Scenario

__all__ = [
    "BadExperiment",
    "Call",
    "Difference",
    "Experiment",
    "HarnessError",
    "Measure",
    "ResultRow",
    "Run",
    "RunFailed",
    "Scenario",
    "Study",
    "Value",
    "column",
    "columns",
    "compare",
    "grouped",
    "load",
    "markdown",
    "mean_iteration_s",
    "named",
    "number",
    "read",
    "selected",
    "spread",
    "sweep",
    "with_seeds",
    "write",
]
