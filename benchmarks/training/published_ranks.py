"""The processes that run published tests: PyTorch's own distributed tests, and Horovod's file for PyTorch.

``python -m benchmarks.training.published_ranks torch BACKEND RANKS LINES [PATTERN…]`` runs PyTorch's with one
backend, in this process and the ranks that it forks. It needs the package expecttest, as all tests of PyTorch
do. ``… horovod FILE RANKS LINES [PATTERN…]`` runs ``test_torch.py`` of github.com/horovod/horovod, in its
folder ``test/parallel``, with `hostlib.horovod` in place of ``horovod.torch``. There each test has ranks of
its own, with the variables that torchrun and horovodrun set, so that a failure disturbs no other test. Both
write a line for each outcome.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path
from typing import Any, Literal, TextIO

from hostlib.launch.launcher import torch_variables
from ina.run.launch.agent import server_address

Kind = Literal["passed", "failed", "skipped"]
KINDS: tuple[Kind, ...] = ("passed", "failed", "skipped")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one test."""

    test: str
    kind: Kind
    why: str = ""
    """The reason for which it was skipped, or the traceback of its failure."""
    seconds: float = 0.0

    @classmethod
    def from_json(cls, line: str) -> Outcome:
        """Return the outcome of a line of `to_json`."""
        return cls(**json.loads(line))

    def to_json(self) -> str:
        """Return it as a line."""
        return json.dumps(asdict(self))


class Writer(unittest.TestResult):
    """Writes the outcome of each test as a line, as soon as it is known."""

    def __init__(self, lines: TextIO) -> None:
        """Write to `lines`."""
        super().__init__()
        self._lines = lines
        self._kind: Kind = "passed"
        self._why = ""
        self._begun_s = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        """Assume that it passes."""
        super().startTest(test)
        self._kind, self._why, self._begun_s = "passed", "", time.monotonic()

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Note why it is skipped."""
        super().addSkip(test, reason)
        self._kind, self._why = "skipped", reason

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """Note how it failed."""
        self.addError(test, err)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """Note how it failed."""
        super().addError(test, err)
        self._kind, self._why = "failed", self.errors[-1][1]

    def stopTest(self, test: unittest.TestCase) -> None:
        """Write its outcome."""
        super().stopTest(test)
        name, seconds = test.id().rsplit(".", 1)[-1], round(time.monotonic() - self._begun_s, 2)
        print(Outcome(name, self._kind, self._why, seconds).to_json(), file=self._lines, flush=True)


GLOO = "gloo"
TORCH_LIMIT_S = 120
"""Longest time of a test: of 3 ranks on 2 processors, most take less than 5 s."""


class _LikeGloo(str):
    """A backend's name that equals gloo's for the tests, which choose their steps by it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == GLOO

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def torch_cases(backend: str) -> type[unittest.TestCase]:
    """Return the class of the tests, which fork their ranks. All backends get those that gloo does."""
    os.environ |= {"BACKEND": GLOO, "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(TORCH_LIMIT_S)}
    from torch.testing._internal.distributed import distributed_test

    distributed_test.BACKEND = _LikeGloo(backend)

    class Published(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    published: type[unittest.TestCase] = Published
    return published


def run_torch(backend: str, ranks: int, lines: Path, patterns: Sequence[str]) -> None:
    """Run PyTorch's tests whose names match one of the patterns, or all."""
    os.environ["WORLD_SIZE"] = str(ranks)
    published = torch_cases(backend)
    with lines.open("w", encoding="utf-8") as file:
        result: Any = Writer(file)
        for name in _named(published, patterns):
            published(name).run(result)


def _named(published: type[unittest.TestCase], patterns: Sequence[str]) -> list[str]:
    names = unittest.TestLoader().getTestCaseNames(published)
    return [name for name in names if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]


LIMIT_S = 180
"""Longest time of a test, with the start of its switch."""


@contextlib.contextmanager
def _temppath() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "file")


def _skip(test: unittest.TestCase, reason: str) -> None:
    test.skipTest(reason)


def horovod_cases(path: Path) -> type[unittest.TestCase]:
    """Return the class of the tests. Raises OSError if the file cannot be read."""
    import hostlib.horovod

    horovod = types.ModuleType("horovod")
    horovod.torch = hostlib.horovod  # type: ignore[attr-defined]
    common = types.ModuleType("common")  # the parts that the file needs of Horovod's own helpers of this name
    common.mpi_env_rank_and_size = lambda: (0, 1)  # type: ignore[attr-defined]  # as without MPI
    common.skip_or_fail_gpu_test = _skip  # type: ignore[attr-defined]
    common.temppath = _temppath  # type: ignore[attr-defined]
    sys.modules |= {"horovod": horovod, "horovod.torch": hostlib.horovod, "common": common}
    spec = importlib.util.spec_from_file_location("horovod_test_torch", path)
    if spec is None or spec.loader is None:
        raise OSError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[unittest.TestCase] = module.TorchTests
    return found


def run_horovod(path: str, ranks: int, lines: Path, patterns: Sequence[str]) -> None:
    """Run Horovod's tests whose names match one of the patterns, or all, each with this many ranks."""
    published = horovod_cases(Path(path))
    with lines.open("w", encoding="utf-8") as file:
        for name in _named(published, patterns):
            reason = _marked(getattr(published, name))
            outcome = Outcome(name, "skipped", reason) if reason else _outcome(published(name), ranks)
            print(outcome.to_json(), file=file, flush=True)


def _marked(test: Callable[..., None]) -> str:
    """Return the reason for which pytest, which Horovod uses, skips a test by its mark; "": none."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "skip"]
    return next((str(mark.kwargs.get("reason") or "marked so") for mark in marks), "")


def _outcome(test: unittest.TestCase, ranks: int) -> Outcome:
    """Return the outcome of a test: passed, or skipped, only if that is so at all ranks."""
    name = test.id().rsplit(".", 1)[-1]
    with server_address("127.0.0.1") as store:
        running = [_start(test, torch_variables(rank, ranks, store.getsockname())) for rank in range(ranks)]
        found = [_end(name, process, pipe) for process, pipe in running]
    failed = [(rank, each) for rank, each in enumerate(found) if each.kind == "failed"]
    seconds = max(each.seconds for each in found)
    if failed:
        whys = "\n".join(f"rank {rank}: {each.why}" for rank, each in failed)
        return Outcome(name, "failed", whys, seconds)
    skipped = next((each for each in found if each.kind == "skipped"), None)
    return skipped or Outcome(name, "passed", "", seconds)


def _start(test: unittest.TestCase, variables: dict[str, str]) -> tuple[int, int]:
    """Fork a rank that runs a test; return its process, and the end of the pipe with its outcome."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    os.close(reader)
    signal.alarm(LIMIT_S)
    horovods = {
        f"HOROVOD_{name}": variables[source] for name, source in (("RANK", "RANK"), ("SIZE", "WORLD_SIZE"))
    }
    os.environ |= variables | horovods
    lines = StringIO()
    test.run(Writer(lines))
    with os.fdopen(writer, "w") as pipe:
        pipe.write(lines.getvalue())
    sys.stdout.flush()
    os._exit(0)


def _end(name: str, process: int, pipe: int) -> Outcome:
    with os.fdopen(pipe) as lines:
        text = lines.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return Outcome.from_json(text) if text else Outcome(name, "failed", f"ended with status {status}")


if __name__ == "__main__":
    run = {"torch": run_torch, "horovod": run_horovod}[sys.argv[1]]
    run(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
