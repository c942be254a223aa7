"""A worker that tries cases, watched from outside: a death or a long silence is a defect.

The process that tries cases: ``python -m benchmarks.p4.p4_fuzz.watch KIND SEED FIRST [CORPUS]``.

It writes a line with the number before each case, and a line with the outcome after it. It continues until
its output is closed; a defect ends it, with the reason on standard error.
"""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.p4.p4_fuzz import messages, packets, programs
from benchmarks.p4.p4_fuzz.programs import ROOT
from softswitch.engine.build import sanitizer_environment

KINDS: Mapping[str, Callable[[int, Path | None], Callable[[int], str]]] = {
    "programs": programs.cases,
    "packets": packets.cases,
    "messages": messages.cases,
}
"""By kind: a function from seed and corpus to one that tries a case by its number."""


def main() -> None:
    """Try one case after the other, as a worker."""
    os.environ.pop("LD_PRELOAD", None)  # the sanitizers, which are in this process: not for compilers
    kind, seed, first, *corpus = sys.argv[1:]
    case = KINDS[kind](int(seed), Path(corpus[0]) if corpus else None)
    try:
        for number in itertools.count(int(first)):
            print(number, flush=True)
            print(case(number), flush=True)
    except BrokenPipeError:
        os._exit(0)


PATIENCE_S = 300.0
"""Longest time of a case, which may wait for the C compiler; a longer one hangs."""


class Defect(Exception):
    """The misbehaviour of a case."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(what)
        self.number = number


@dataclass(frozen=True, slots=True)
class Job:
    """A kind of cases, drawn from a seed, and from other programs if there is a `corpus`."""

    kind: str
    seed: int
    corpus: Path | None = None

    def again(self, number: int) -> str:
        """Return the command that tries one case again."""
        corpus = ["--corpus", str(self.corpus)] if self.corpus else []
        words = [self.kind, "--seed", str(self.seed), "--first", str(number), "--cases", "1", *corpus]
        return shlex.join(("python", "-m", "benchmarks.p4.p4_fuzz", *words))

    def start(self, first: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a worker."""
        words = [self.kind, str(self.seed), str(first), *([str(self.corpus)] if self.corpus else [])]
        sanitized = sanitizer_environment() if self.kind == "packets" else {}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarks.p4.p4_fuzz.watch", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(ROOT), **sanitized},
        )


def watched(
    job: Job, *, first: int = 0, cases: int | None = None, until_s: float
) -> Iterator[tuple[float, str]]:
    """Yield (seconds so far, outcome) case by case, until the time is over. Raises Defect."""
    with tempfile.TemporaryFile() as errors, job.start(first, errors) as worker:
        try:
            yield from _cases(worker, errors, first, cases, until_s)
        finally:
            worker.kill()


def _cases(
    worker: subprocess.Popen[bytes], errors: IO[bytes], first: int, cases: int | None, until_s: float
) -> Iterator[tuple[float, str]]:
    started = time.monotonic()
    elapsed_s = 0.0
    assert worker.stdout is not None
    for number in itertools.count(first):
        if elapsed_s > until_s or number - first == cases:
            return
        guard = threading.Timer(PATIENCE_S, worker.kill)
        guard.start()
        begun, outcome = worker.stdout.readline(), worker.stdout.readline()
        guard.cancel()
        if not begun or not outcome:
            errors.seek(0)
            what = f"it ended with {worker.wait()}, or nothing came for {PATIENCE_S:.0f} s"
            raise Defect(number, f"{what}\n{errors.read().decode(errors='replace')}")
        elapsed_s = time.monotonic() - started
        yield elapsed_s, outcome.decode().strip()


if __name__ == "__main__":
    main()
