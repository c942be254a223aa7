"""Watch over the calls of a process group: ranks that have waited long compare their latest calls.

If ranks made a call differently, or a rank did not make it, the call fails with an error that names the ranks
and their calls. Packets alone show such a difference only for calls that went through the switch on all
ranks. A warning (logger ``hostlib.watch``) names a rank that is only slow.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

KEPT: Final = 64
"""Number of a rank's latest calls to keep."""


@dataclass(frozen=True, slots=True)
class Page:
    """The latest calls of a rank, as it shows them to other ranks."""

    first: int
    """Number of the first call in `calls`."""
    calls: Sequence[str]
    """Descriptions of the calls, in order; ranks must agree on them."""

    @property
    def last(self) -> int:
        """The number of the last call; -1 before the first call."""
        return self.first + len(self.calls) - 1

    def call(self, number: int) -> str | None:
        """Return a call's description; None if it is not on the page."""
        place = number - self.first
        return self.calls[place] if 0 <= place < len(self.calls) else None

    def to_json(self) -> str:
        """Return the text that `from_json` reads."""
        return json.dumps({"first": self.first, "calls": list(self.calls)})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a page. Raises ValueError, KeyError or TypeError for an invalid text."""
        fields = json.loads(text)
        return cls(int(fields["first"]), [str(call) for call in fields["calls"]])


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that has not ended: its number, its description, and the time since it began."""

    number: int
    call: str
    waited_s: float


class CallRecord:
    """Record of this rank's calls; only one thread may use it at a time."""

    def __init__(self) -> None:
        self._calls: deque[str] = deque(maxlen=KEPT)
        self._next = 0
        self._open: dict[int, tuple[str, float]] = {}

    def begin(self, call: str) -> int:
        """Record that a call begins; return its number."""
        number, self._next = self._next, self._next + 1
        self._calls.append(call)
        self._open[number] = call, time.monotonic()
        return number

    def end(self, number: int) -> None:
        """Record that a call has ended, with or without an error. No effect if that was recorded before."""
        self._open.pop(number, None)

    def oldest(self) -> Waiting | None:
        """Return the earliest call that has not ended; None if all calls have ended."""
        number = min(self._open, default=None)
        if number is None:
            return None
        call, began = self._open[number]
        return Waiting(number, call, time.monotonic() - began)

    def page(self) -> Page:
        """Return the latest calls."""
        return Page(self._next - len(self._calls), tuple(self._calls))


def disagreement(pages: Mapping[int, Page]) -> str | None:
    """Describe how ranks differ in the first call that they made differently; None if no call differs.

    Only calls that at least two of the pages hold are compared.
    """
    first = min((page.first for page in pages.values()), default=0)
    last = max((page.last for page in pages.values()), default=-1)
    for number in range(first, last + 1):
        made = {rank: call for rank, page in sorted(pages.items()) if (call := page.call(number)) is not None}
        if len(set(made.values())) > 1:
            return f"call {number} is {_by_call(made)}"
    return None


def behind(pages: Mapping[int, Page], number: int) -> dict[int, str]:
    """Return the ranks that have not made call `number`, each with its last call."""
    return {
        rank: page.calls[-1] if page.calls else "nothing"
        for rank, page in sorted(pages.items())
        if page.last < number
    }


def _by_call(made: Mapping[int, str]) -> str:
    ranks: dict[str, list[int]] = {}
    for rank, call in made.items():
        ranks.setdefault(call, []).append(rank)
    return ", but ".join(
        f"{call} at rank{'s' if len(callers) > 1 else ''} {', '.join(map(str, callers))}"
        for call, callers in ranks.items()
    )


EXPLAIN_S: Final = 10.0
"""Longest wait, in seconds, for the other ranks' calls once the ranks are known to disagree."""
_LOOK_S: Final = 1.0
"""Longest time, in seconds, between two checks for other ranks' requests."""
_LOOKS: Final = 4
"""Number of checks in the time after which a call counts as stalled."""
_log = logging.getLogger("hostlib.watch")


class SharedTexts(Protocol):
    """Store of texts that all ranks share, such as torch's store.

    Calls raise RuntimeError once the process with the store has ended.
    """

    def set(self, key: str, value: str, /) -> None:
        """Store a text."""

    def get(self, key: str, /) -> bytes:
        """Return a stored text."""

    def check(self, keys: list[str], /) -> bool:
        """Return whether texts are stored for all these keys."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter, 0 at first, and return its value."""


class Watch:
    """The calls of one rank, and a thread that checks them at intervals."""

    def __init__(
        self,
        store: SharedTexts,
        rank: int,
        size: int,
        *,
        stall_s: float,
        on_disagreement: Callable[[str], None],
        patience_s: float = EXPLAIN_S,
    ) -> None:
        """Start the thread.

        Args:
            store: The store that all ranks share.
            rank: This rank.
            size: Number of ranks.
            stall_s: Time after which a call counts as stalled.
            on_disagreement: Called once with the text of `disagreement`, in the watch's thread.
            patience_s: Longest time, in seconds, that the other ranks wait in a call for a missing rank. If
                it is short, `explain` waits less long for these ranks, too.
        """
        self._store = store
        self._rank = rank
        self._size = size
        self._stall_s = stall_s
        self._explain_s = min(EXPLAIN_S, patience_s + _LOOK_S)
        self._on_disagreement = on_disagreement
        self._record = CallRecord()
        self._under_way: dict[int, Callable[[], bool]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._found: str | None = None
        self._explained = False
        self._explaining = threading.Lock()
        self._all_know = threading.Event()
        self._answered = 0
        self._requested_for: int | None = None
        self._warned_of: int | None = None
        self._thread = threading.Thread(target=self._serve, name="watch", daemon=True)
        self._thread.start()

    def begin(self, call: str, ended: Callable[[], bool] | None = None) -> int:
        """Record that a call begins; return its number.

        Args:
            call: Description on which ranks must agree.
            ended: Function that returns whether the call is over; None: a call of `end` or `track` follows.
        """
        with self._lock:
            self._prune()
            number = self._record.begin(call)
            if ended:
                self._under_way[number] = ended
            return number

    def end(self, number: int) -> None:
        """Record that a call is over."""
        with self._lock:
            self._record.end(number)

    def track(self, number: int, ended: Callable[[], bool]) -> None:
        """Set the function that returns whether the call under way is over."""
        with self._lock:
            self._under_way[number] = ended

    def explain(self, number: int) -> str | None:
        """Describe how the ranks' calls differ, after call `number` has failed; None if it is unknown.

        Only the first call of this method waits for other ranks; later calls return what is known then.
        """
        with self._explaining:
            if not self._explained:
                self._explained = True
                if text := self._explanation(number):
                    self._found = text
                    self._all_know.set()
        return self._found

    def _explanation(self, number: int) -> str | None:
        deadline = time.monotonic() + self._explain_s
        try:
            self._request_pages()
            while not self._over.wait(0.02):
                pages = self._read()
                complete = len(pages) == self._size and not behind(pages, number)
                if (text := disagreement(pages)) and (complete or time.monotonic() > deadline):
                    self._let_others_read(max(deadline, time.monotonic() + _LOOK_S))
                    return text
                if time.monotonic() > deadline:
                    return None
        except RuntimeError as error:
            _log.debug("cannot read the other ranks' calls: %s", error)
        return None

    def found(self) -> str | None:
        """Describe how the ranks disagree; None if no disagreement is known.

        First wait until the other ranks know of the disagreement, too, or do not answer in time. If a caller
        raises an error, its process may end, and with it the store and other ranks' connections.
        """
        if self._found is not None:
            self._all_know.wait(self._explain_s)
        return self._found

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop watching; wait `timeout_s` at most for the thread to end."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _serve(self) -> None:
        try:
            while not self._over.wait(min(_LOOK_S, self._stall_s / _LOOKS)):
                self._look()
        except RuntimeError as error:  # without the store's host the calls themselves fail
            _log.debug("the ranks' calls are no longer watched: %s", error)

    def _look(self) -> None:
        requests = self._store.add("asked", 0)
        if requests != self._answered:
            self._show()
            self._answered = requests
        with self._lock:
            self._prune()
            oldest = self._record.oldest()
        if oldest is None or oldest.waited_s < self._stall_s:
            self._requested_for = None
        elif self._requested_for != oldest.number:
            self._requested_for = oldest.number
            self._request_pages()
        else:
            self._judge(oldest)

    def _judge(self, stalled: Waiting) -> None:
        pages = self._read()
        if text := disagreement(pages):
            self._over.set()
            self._found = text  # before other ranks know it, and may close their connections to this one
            self._let_others_read(time.monotonic() + self._explain_s)
            self._all_know.set()
            self._on_disagreement(text)
        elif self._warned_of != stalled.number:
            self._warned_of = stalled.number
            late = behind(pages, stalled.number).items()
            awaited = [f"rank {rank}, which called {last} last" for rank, last in late]
            awaited += [
                f"rank {rank}, which has not reported its calls"
                for rank in range(self._size)
                if rank not in pages
            ]
            _log.warning(
                "call %d, %s, has not ended for %.0f s; it waits for %s",
                stalled.number,
                stalled.call,
                stalled.waited_s,
                "; ".join(awaited) or "no rank: all have called it",
            )

    def _let_others_read(self, deadline: float) -> None:
        """Wait until all ranks know of the disagreement.

        The store is in the process of one rank. If that process ended first, the other ranks could no longer
        read the store.
        """
        everyone = [f"knows/{rank}" for rank in range(self._size)]
        with contextlib.suppress(RuntimeError):
            self._store.set(everyone[self._rank], "")
            while not self._store.check(everyone) and time.monotonic() < deadline:
                time.sleep(0.02)

    def _request_pages(self) -> None:
        self._show()
        self._store.add("asked", 1)

    def _show(self) -> None:
        with self._lock:
            page = self._record.page()
        self._store.set(f"calls/{self._rank}", page.to_json())

    def _read(self) -> dict[int, Page]:
        keys = {rank: f"calls/{rank}" for rank in range(self._size)}
        present = [rank for rank, key in keys.items() if self._store.check([key])]
        return {rank: Page.from_json(self._store.get(keys[rank])) for rank in present}

    def _prune(self) -> None:
        for number in [number for number, ended in self._under_way.items() if ended()]:
            del self._under_way[number]
            self._record.end(number)
