"""Errors of the harness.

HarnessError
├── BadExperiment    there is no experiment, or it makes no sense: says what does not, and why
└── RunFailed        a run raised an error: names the run, the error and the line
"""

from __future__ import annotations


class HarnessError(Exception):
    """Any error of the harness."""

    exit_code = 1


class BadExperiment(HarnessError):
    """There is no experiment where one was expected, or a part of it makes no sense."""

    exit_code = 2


class RunFailed(HarnessError):
    """A run of an experiment raised an error. It survives pickling."""
