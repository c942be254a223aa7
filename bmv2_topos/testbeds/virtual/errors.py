"""Errors of the virtual testbed."""

from __future__ import annotations


class TestbedError(Exception):
    """The testbed cannot run, or found something that must not be.

    TestbedError
    ├── WrongSum    a worker was handed a result that is not the sum
    └── Stalled     nothing has moved for `VirtualSettings.patience_s`
    """

    exit_code = 2

    __test__ = False  # pytest takes classes called Test* for tests


class WrongSum(TestbedError):
    """A worker was handed a result that is not the sum of all ranks' contributions."""

    exit_code = 1


class Stalled(TestbedError):
    """Workers wait for results that do not come; says which, and for whom."""

    exit_code = 1
