"""Turns of `ina bench allreduce`: the ranks of one library measure, then the ranks of the next library.

All processes run from the beginning, so that other load on the machine affects all libraries equally. Between
their turns they block in a read, which takes no processor time. A rank connects to a Unix socket, and writes
the name of its library. For each line with the name of a contender, the rank measures this contender, and
answers with the elapsed time and the processor time, in seconds. It ends when the connection is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

_LOOK_S = 0.1
"""Interval, in seconds, of checks for processes that ended instead of connecting."""


@dataclass(slots=True)
class ContenderTimes:
    """Measurements of a contender, such as a library, in seconds. Each list has one entry per iteration."""

    times_s: list[float] = field(default_factory=list)
    """For each turn, the elapsed time of the slowest rank."""
    processor_s: list[float] = field(default_factory=list)
    """For each turn, the processor time of all ranks together."""
    switch_s: list[float] = field(default_factory=list)
    """For each turn, the processor time of the switches."""


def processor_s(processes: Iterable[int]) -> float:
    """Return the processor time that the running threads of these processes have used, in seconds."""
    total = 0
    for process in processes:
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                total += int((thread / "schedstat").read_text().split()[0])
    return total * 1e-9


def machine_kind() -> dict[str, object]:
    """Return the processors' model name, the number of processors, and the load average of one minute."""
    cells = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    models = (value.strip() for key, _, value in cells if key.strip() == "model name")
    model = next(models, os.uname().machine)
    return {"processor": model, "processors": os.cpu_count(), "load": os.getloadavg()[0]}


class MeasuringTurns:
    """Gives the ranks their turns, in a thread; a context manager that exits after the last turn.

    Attributes:
        found: The measurements, by contender.
        failure: Why measurements are missing; None if all were completed.
    """

    def __init__(
        self,
        path: Path,
        contenders: Sequence[tuple[str, str]],
        ranks: int,
        iterations: int,
        failed: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Listen on a Unix socket for the ranks.

        Args:
            path: The path of the socket.
            contenders: Library and name of each contender, in the order of the turns.
            ranks: Number of ranks of each library.
            iterations: Number of measurements of each contender, after one that does not count.
            failed: Returns why a library's processes failed; None if they did not.
        """
        self.found = {name: ContenderTimes() for _, name in contenders}
        self.failure: str | None = None
        self.switches: Sequence[int] = ()
        """Ids of the switch processes, whose processor time is `ContenderTimes.switch_s`."""
        self._contenders, self._ranks, self._iterations, self._failed = contenders, ranks, iterations, failed
        self._closing = False
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(128)
        self._listener.settimeout(_LOOK_S)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        """Start the thread that waits for the ranks and gives them their turns."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for the last turn; after an error, disconnect the ranks instead."""
        self._closing = kind is not None
        for connection in self._connections if self._closing else ():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._listener)
            try:
                ends = self._met(stack)
                for counts in [False] + [True] * self._iterations:
                    for library, name in self._contenders:
                        self._turn(library, name, ends, counts=counts)
            except (OSError, ValueError) as error:
                self.failure = self._failed() or str(error)

    def _met(self, stack: contextlib.ExitStack) -> Mapping[str, list[IO[str]]]:
        ends: dict[str, list[IO[str]]] = {library: [] for library, _ in self._contenders}
        while any(len(those) < self._ranks for those in ends.values()):
            if why := "ended" if self._closing else self._failed():
                raise ValueError(why)
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.settimeout(None)
                self._connections.append(stack.enter_context(connection))
                end = stack.enter_context(connection.makefile("rw"))
                ends[json.loads(end.readline())].append(end)
        return ends

    def _turn(self, library: str, name: str, ends: Mapping[str, list[IO[str]]], *, counts: bool) -> None:
        before_s = processor_s(self.switches)
        for end in ends[library]:
            end.write(f"{name}\n")
            end.flush()
        answers = [end.readline() for end in ends[library]]
        if not all(answers):
            raise ValueError(f"a rank of {library} ended before its last turn")
        times, busy = zip(*map(json.loads, answers), strict=True)
        if counts:
            found = self.found[name]
            found.times_s.append(max(times))
            found.processor_s.append(sum(busy))
            found.switch_s.append(processor_s(self.switches) - before_s)


@contextlib.contextmanager
def joined(path: str, library: str) -> Iterator[tuple[Iterator[str], Callable[[float, float], None]]]:
    """Join the turns as a rank.

    Args:
        path: Path of the Unix socket.
        library: The library of this rank.

    Yields:
        The names of the contenders to measure, each at its turn, and a function that reports the elapsed time
        and the processor time of a measurement, in seconds.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rw") as end:

            def say(message: object) -> None:
                end.write(f"{json.dumps(message)}\n")
                end.flush()

            say(library)
            yield (line.strip() for line in end), lambda elapsed, busy: say((elapsed, busy))
