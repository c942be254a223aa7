"""PyTorch's own distributed tests with one backend, in this process and the ranks that it forks.

``python -m benchmarks.training.published_tests.torch_tests BACKEND RANKS LINES [PATTERN…]`` writes a line for
each outcome. It needs the package expecttest, as all tests of PyTorch do.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import unittest
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.training.published_tests.outcomes import Writer

GLOO = "gloo"
LIMIT_S = 120
"""Longest time of a test: of 3 ranks on 2 processors, most take less than 5 s."""


class _LikeGloo(str):
    """A backend's name that the tests, which ask for it to choose what to do, take for gloo's."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == GLOO

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def cases(backend: str) -> type[unittest.TestCase]:
    """Return the class of the tests, which fork their ranks. All backends get those that gloo does."""
    os.environ |= {"BACKEND": GLOO, "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(LIMIT_S)}
    from torch.testing._internal.distributed import distributed_test

    distributed_test.BACKEND = _LikeGloo(backend)

    class Published(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    published: type[unittest.TestCase] = Published
    return published


def run(backend: str, ranks: int, lines: Path, patterns: Sequence[str]) -> None:
    """Run the tests whose names match one of the patterns, or all."""
    os.environ["WORLD_SIZE"] = str(ranks)
    names = unittest.TestLoader().getTestCaseNames(published := cases(backend))
    with lines.open("w", encoding="utf-8") as file:
        result: Any = Writer(file)
        for name in names:
            if not patterns or any(fnmatch(name, pattern) for pattern in patterns):
                published(name).run(result)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
