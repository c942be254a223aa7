"""Errors of the harness.

HarnessError
├── BadExperiment    no experiment was found, or a part of it is invalid: names the part and the reason
└── RunFailed        a run raised an error: names the run, the error and the line
"""

from __future__ import annotations


class HarnessError(Exception):
    """Any error of the harness."""

    exit_code = 1


class BadExperiment(HarnessError):
    """A file or module has no experiment, or a part of the experiment is invalid."""

    exit_code = 2


class RunFailed(HarnessError):
    """A run of an experiment raised an error. Can be pickled, so that a process can send it to its parent."""
