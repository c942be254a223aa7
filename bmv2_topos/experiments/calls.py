"""Runs of an experiment that are calls of a function: flows, plans, and packets compared with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bmv2_topos.experiments.harness import ResultRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One run that is a call, and the same digits anywhere."""

    labels: ResultRow
    """Columns that identify its row."""
    call: Callable[[], ResultRow]
    """Returns the columns that it adds to its labels. It is sent to other processes: a partial of a function
    of a module."""
    elements: int = 0
    """Elements that all workers send packet by packet; 0: it is only computed, in less than a second."""

    @property
    def real(self) -> bool:
        """False: nothing is timed."""
        return False

    def run(self) -> ResultRow:
        """Call it."""
        return self.call()


def columns(found: ResultRow) -> ResultRow:
    """Return what a call has returned: the `measure` of experiments whose runs are calls."""
    return found
