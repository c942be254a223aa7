"""What became of each test."""

from __future__ import annotations

import json
import time
import unittest
from dataclasses import asdict, dataclass
from typing import Any, Literal, TextIO

Kind = Literal["passed", "failed", "skipped"]
KINDS: tuple[Kind, ...] = ("passed", "failed", "skipped")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test."""

    test: str
    kind: Kind
    why: str = ""
    """Why it was skipped, or the traceback of its failure."""
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
        """Write what became of it."""
        super().stopTest(test)
        name, seconds = test.id().rsplit(".", 1)[-1], round(time.monotonic() - self._begun_s, 2)
        print(Outcome(name, self._kind, self._why, seconds).to_json(), file=self._lines, flush=True)
