from __future__ import annotations

import logging
import threading
import time

import pytest

import hostlib.collectives.paths
from hostlib.collectives.paths import SWITCH, CallPaths
from hostlib.collectives.watch import EXPLAIN_S, KEPT, CallRecord, Page, Watch, behind, disagreement


class DictStore:
    """A store that threads share. A text that is `awaited` comes: who asks for it is told so then."""

    def __init__(self, awaited: str = "") -> None:
        self._texts: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._awaited = awaited
        self._came = threading.Event()

    def set(self, key: str, value: str, /) -> None:
        self._texts[key] = value
        if key == self._awaited:
            self._came.set()

    def get(self, key: str, /) -> bytes:
        return self._texts[key].encode()

    def check(self, keys: list[str], /) -> bool:
        if self._awaited in keys:
            self._came.wait(60)
        return all(key in self._texts for key in keys)

    def add(self, key: str, amount: int, /) -> int:
        with self._lock:
            self._numbers[key] = self._numbers.get(key, 0) + amount
            return self._numbers[key]


def test_the_first_call_that_differs_is_named_with_its_ranks() -> None:
    same = Page(0, ["barrier", "sum of 3", "sum of 4"])
    assert disagreement({0: same, 1: same}) is None
    other = Page(0, ["barrier", "max of 3", "sum of 5"])
    assert (
        disagreement({0: same, 1: other, 2: same})
        == "call 1 is sum of 3 at ranks 0, 2, but max of 3 at rank 1"
    )


def test_only_calls_that_two_pages_hold_are_compared() -> None:
    assert disagreement({}) is None
    assert disagreement({0: Page(0, ["a"]), 1: Page(1, ["b"])}) is None
    assert (
        disagreement({0: Page(0, ["a", "b"]), 1: Page(1, ["c"])}) == "call 1 is b at rank 0, but c at rank 1"
    )


def test_ranks_that_are_behind_are_named_with_their_last_call() -> None:
    pages = {0: Page(0, ["a", "b"]), 1: Page(0, ["a"]), 2: Page(0, [])}
    assert behind(pages, 1) == {1: "a", 2: "nothing"}
    assert behind(pages, 0) == {2: "nothing"}


def test_a_ledger_keeps_the_latest_calls_and_knows_the_oldest_that_is_open() -> None:
    record = CallRecord()
    numbers = [record.begin(f"call {number}") for number in range(KEPT + 2)]
    page = Page.from_json(record.page().to_json())
    assert (page.first, page.last) == (2, KEPT + 1)
    assert page.call(1) is None
    assert page.call(2) == "call 2"
    assert (oldest := record.oldest())
    assert (oldest.number, oldest.call) == (0, "call 0"), "also of a call that is on the page no more"
    assert 0 <= oldest.waited_s < 900
    for number in numbers:
        record.end(number)
        record.end(number)
    assert record.oldest() is None


def test_a_watch_finds_calls_that_differ() -> None:
    store, told = DictStore(), [threading.Event(), threading.Event()]
    said: dict[int, str] = {}

    def tell(rank: int, text: str) -> None:
        said[rank] = text
        told[rank].set()

    watches = [
        Watch(store, rank, 2, stall_s=0.1, on_disagreement=lambda text, rank=rank: tell(rank, text))
        for rank in (0, 1)
    ]
    watches[0].begin("sum")
    watches[1].begin("max")
    assert all(event.wait(60) for event in told)
    for watch in watches:
        watch.stop()
    assert {*said.values()} == {"call 0 is sum at rank 0, but max at rank 1"}


class SlowReaders(DictStore):
    """A store whose other rank knows of a disagreement only when rank 0 has looked for it some times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def check(self, keys: list[str], /) -> bool:
        if "knows/1" in keys:
            self.looks -= 1
            return self.looks == 0
        return super().check(keys)


def test_a_disagreement_is_not_said_before_the_others_know_of_it() -> None:
    """A rank that raised it earlier ended its process: the other saw a lost connection, and knew no cause."""
    store = SlowReaders(looks=5)
    store.set("calls/1", Page(0, ["max"]).to_json())
    watch = Watch(store, 0, 2, stall_s=0.1, on_disagreement=lambda text: None)
    watch.begin("sum")
    while (text := watch.found()) is None:
        time.sleep(0.001)
    assert store.looks == 0
    assert text == "call 0 is sum at rank 0, but max at rank 1"
    watch.stop()


def test_ranks_that_do_not_answer_delay_an_explanation_by_their_patience_and_once() -> None:
    """Each call of a rank that came late once waited for ten seconds, or eleven."""
    store = DictStore()
    store.set("calls/1", Page(0, ["max"]).to_json())
    watch = Watch(store, 0, 2, stall_s=60, on_disagreement=lambda text: None, patience_s=0.1)
    watch.begin("sum")
    began_s = time.monotonic()
    assert (
        watch.explain(0) == watch.explain(0) == watch.found() == "call 0 is sum at rank 0, but max at rank 1"
    )
    assert time.monotonic() - began_s < EXPLAIN_S / 2
    watch.stop()


def test_a_watch_warns_of_a_rank_that_is_late(caplog: pytest.LogCaptureFixture) -> None:
    store, warned = DictStore(awaited="calls/1"), threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: warned.set()  # type: ignore[method-assign]
    logging.getLogger("hostlib.watch").addHandler(handler)
    watches = [Watch(store, rank, 3, stall_s=0.1, on_disagreement=lambda text: None) for rank in (0, 1)]
    watches[0].begin("sum of 3")
    assert warned.wait(60)
    for watch in watches:
        watch.stop()
    logging.getLogger("hostlib.watch").removeHandler(handler)
    assert "call 0, sum of 3, has not ended for" in caplog.text
    assert "rank 1, which called nothing last; rank 2, which has not reported its calls" in caplog.text


def test_paths_are_counted_by_group_and_the_first_of_a_kind_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostlib.collectives.paths, "_logged", set())
    paths, later = CallPaths(), CallPaths()
    for group in (paths, paths, later):
        group.took("allreduce sum float32", SWITCH)
        group.took("allreduce max float32", "gloo", "it has no max", loud=True)
    paths.took("barrier", "gloo")
    assert paths.counts() == {
        "allreduce max float32": {"gloo": 2},
        "allreduce sum float32": {"switch": 2},
        "barrier": {"gloo": 1},
    }
    assert (paths.total("gloo"), later.total("gloo")) == (3, 1)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "allreduce max float32 goes through gloo, not the switch: it has no max"
    ]
