"""Interrupts of a rank: wherever one comes, the job ends or goes on, and nobody waits for ever."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType

import numpy as np
import pytest

import hostlib as ina
from hostlib.collectives.handle import Once
from hostlib.errors import Interrupted
from tests.hostlib.socket_switch import SocketSwitch
from tests.hostlib.test_communicator import ENDLESS


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have SIGINT interrupt this process, also where whoever started the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_wait_and_the_job() -> None:
    with SocketSwitch(2, **ENDLESS) as switch:
        communicator = ina.Communicator(switch.configs[0])

        def interrupt() -> None:
            while not switch.largest_batch:  # nothing has been heard of the sum
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            communicator.allreduce(np.ones(3, np.float32))
        with pytest.raises(Interrupted, match="sum of 3 float32 was abandoned: KeyboardInterrupt"):
            communicator.allreduce(np.ones(3, np.float32))
        communicator.close()
        interrupting.join()


@contextmanager
def interrupted_at(number: int) -> Iterator[list[str]]:
    """Raise KeyboardInterrupt at that call of a function, as a signal would; say which function it was."""
    calls = itertools.count(1)
    where: list[str] = []

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        ours = any(folder in frame.f_code.co_filename for folder in ("hostlib", "threading"))
        if event == "call" and ours and frame.f_code.co_filename != __file__ and next(calls) == number:
            sys.setprofile(None)
            where.append(frame.f_code.co_qualname)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        yield where
    except KeyboardInterrupt:
        assert where
    finally:
        sys.setprofile(None)


def test_an_interrupt_at_any_point_leaves_the_turn_to_the_next_call() -> None:
    one = np.ones(3, np.float32)
    for number in itertools.count(1):
        comm = ina.Communicator(None)
        with interrupted_at(number) as where:
            comm.allreduce(one)
        assert np.array_equal(comm.allreduce_async(one).wait(timeout=120), one), where
        comm.close()
        if not where:
            return


def test_an_interrupt_at_any_point_of_a_job_ends_it_or_does_no_harm() -> None:
    one, met = np.ones(3, np.float32), set()
    for number in itertools.count(1):
        with SocketSwitch(1, **ENDLESS) as switch, closing(ina.Communicator(switch.configs[0])) as comm:
            with interrupted_at(number) as where:
                comm.allreduce(one)
            met.update(where)
            with suppress(Interrupted):
                assert np.array_equal(comm.allreduce(2 * one), 2 * one), where
        if not where:
            assert {"CallOrder._run", "Window.begin", "Link.pump", "Window.numeric_errors"} <= met
            return


def test_whoever_waits_before_or_after_goes_on() -> None:
    once = Once()
    assert not once.has_happened
    assert not once.wait(0.0)
    found: list[bool] = []
    waiters = [threading.Thread(target=lambda: found.append(once.wait(30.0))) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
    once.happen()
    for waiter in waiters:
        waiter.join()
    assert found == [True] * 4
    assert once.has_happened
    assert once.wait(0.0)
    assert once.wait()
