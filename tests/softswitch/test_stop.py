"""A process that runs until it is told to stop hears it, whenever that is."""

from __future__ import annotations

import signal
import threading

import pytest

from softswitch.daemon import SIGNALS, Stop


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_does_not_interrupt_the_main_thread_ends_its_wait(number: signal.Signals) -> None:
    """As one that comes when it is about to wait: a switch that had just begun did not end at SIGTERM."""
    before = signal.getsignal(number)
    with Stop() as stop:

        def signal_here() -> None:
            signal.pthread_kill(threading.get_ident(), number)

        elsewhere = threading.Timer(0.05, signal_here)
        elsewhere.start()
        stop.wait_in_main_thread()
        assert stop.wait(0)
    elsewhere.join()
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_that_comes_before_the_wait_ends_it() -> None:
    with Stop() as stop:
        signal.raise_signal(signal.SIGTERM)
        stop.wait_in_main_thread()


def test_other_signals_do_not_end_it() -> None:
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        with Stop() as stop:
            signal.raise_signal(signal.SIGUSR1)
            threading.Timer(0.05, stop.set).start()
            stop.wait_in_main_thread()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [1]


def test_threads_wait_for_it_too_and_it_may_be_set_after_its_end() -> None:
    with Stop() as stop:
        assert not stop.wait(0)
        stop.set()
        assert stop.wait(0)
        stop.wait_in_main_thread()
    stop.set()
