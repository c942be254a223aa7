"""Horovod's own test file for PyTorch with `hostlib.horovod` in place of ``horovod.torch``.

``python -m benchmarks.training.published_tests.horovod_tests FILE RANKS LINES [PATTERN…]`` writes a line for
each outcome. FILE is ``test_torch.py`` of github.com/horovod/horovod, in its folder ``test/parallel``. Each
test has ranks of its own, with the variables that torchrun and horovodrun set, so that one that fails
disturbs no other.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import tempfile
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from io import StringIO
from pathlib import Path

import hostlib.horovod
from benchmarks.training.published_tests.outcomes import Outcome, Writer
from hostlib.launch.launcher import torch_variables
from ina.runtime.addresses import server_address

LIMIT_S = 180
"""Longest time of a test, for the switch that it starts included."""


@contextlib.contextmanager
def _temppath() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "file")


def _skip(test: unittest.TestCase, reason: str) -> None:
    test.skipTest(reason)


def cases(path: Path) -> type[unittest.TestCase]:
    """Return the class of the tests. Raises OSError if the file cannot be read."""
    horovod = types.ModuleType("horovod")
    horovod.torch = hostlib.horovod  # type: ignore[attr-defined]
    common = types.ModuleType("common")  # what the file takes of Horovod's own helpers of this name
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


def run(path: Path, ranks: int, lines: Path, patterns: Sequence[str]) -> None:
    """Run the tests whose names match one of the patterns, or all, each with this many ranks."""
    published = cases(path)
    names = unittest.TestLoader().getTestCaseNames(published)
    with lines.open("w", encoding="utf-8") as file:
        for name in names:
            if not patterns or any(fnmatch(name, pattern) for pattern in patterns):
                reason = _marked(getattr(published, name))
                outcome = Outcome(name, "skipped", reason) if reason else _outcome(published(name), ranks)
                print(outcome.to_json(), file=file, flush=True)


def _marked(test: Callable[..., None]) -> str:
    """Return why pytest, which Horovod runs the file with, skips a test by its mark; "": it does not."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "skip"]
    return next((str(mark.kwargs.get("reason") or "marked so") for mark in marks), "")


def _outcome(test: unittest.TestCase, ranks: int) -> Outcome:
    """Return the outcome of a test: it passes, or is skipped, if it is at all ranks."""
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
    """Fork a rank that runs a test; return its process, and where it writes what became of it."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    os.close(reader)
    signal.alarm(LIMIT_S)
    horovods = {f"HOROVOD_{name}": variables[of] for name, of in (("RANK", "RANK"), ("SIZE", "WORLD_SIZE"))}
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
    run(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
