"""Joining a job and leaving it: alone, by the environment, again, in forked processes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import hostlib as ina
from hostlib import _native
from hostlib.collectives import COUNTED, KEYS
from tests.hostlib.socket_switch import SocketSwitch
from tests.hostlib.test_communicator import ENDLESS
from tests.sockets import bound_udp

pytestmark = pytest.mark.filterwarnings("ignore::hostlib.PrecisionWarning")


def test_a_process_alone_is_a_job_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INA_JOB", raising=False)
    with pytest.raises(ina.NotInitialized, match=r"init\(\)"):
        ina.rank()
    ina.init()
    ina.init()
    assert (ina.rank(), ina.size(), ina.is_initialized()) == (0, 1, True)
    values = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(ina.allreduce(values), values)
    assert np.array_equal(ina.allreduce_async(values, op="average").wait(), values)
    assert np.array_equal(ina.reduce(values), values)
    assert np.array_equal(ina.reduce_async(values).wait(), values)
    ina.progress(1, 2)
    with pytest.raises(ina.NonFiniteError):
        ina.allreduce(np.array([1.0, np.inf]))
    ina.barrier()
    statistics = ina.statistics()
    assert statistics.keys() == set(KEYS)
    assert (statistics["collectives"], statistics["elements"]) == (5, 24)
    assert not any(value for key, value in statistics.items() if key not in COUNTED)
    ina.shutdown()
    ina.shutdown()
    assert not ina.is_initialized()


def test_the_environment_describes_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with SocketSwitch(1) as switch:
        monkeypatch.setenv("INA_JOB", switch.configs[0].to_json())
        ina.init()
        assert ina.allreduce(np.full(4, 2, np.int32)).tolist() == [2, 2, 2, 2]
        statistics = ina.statistics()
        ina.shutdown()
    assert statistics.keys() == set(KEYS)
    assert statistics["collectives"] == 1
    assert statistics["elements"] == 4
    assert statistics["packets_sent"] == statistics["packets_results"] == 1


def test_a_job_that_was_left_cannot_be_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with SocketSwitch(1) as switch:
        monkeypatch.setenv("INA_JOB", switch.configs[0].to_json())
        ina.init()
        assert ina.allreduce(np.full(4, 2, np.int32)).tolist() == [2, 2, 2, 2]
        ina.shutdown()
        with pytest.raises(ina.NotInitialized, match=r"job 7 was left with shutdown\(\).* once in a process"):
            ina.init()  # the switch would answer with the sums of before
        assert not ina.is_initialized()


def test_a_forked_process_does_not_wait_for_what_its_parent_has_begun() -> None:
    with SocketSwitch(2, **ENDLESS) as switch:
        one, other = (ina.Communicator(config) for config in switch.configs)
        handle = one.allreduce_async(np.ones(4, np.float32))  # which the other rank has not called
        child = os.fork()
        if child == 0:
            try:
                handle.wait(timeout=60)
            except ina.NotInitialized:
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        other.allreduce_async(np.ones(4, np.float32)).wait()
        assert handle.wait().tolist() == [2.0] * 4
        for communicator in (one, other):
            communicator.close()
    assert status == 0


def test_a_process_alone_can_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INA_JOB", raising=False)
    for value in (1, 2):
        ina.init()
        assert ina.allreduce(np.full(2, value, np.int32)).tolist() == [value, value]
        ina.shutdown()


def test_a_taken_address_is_refused() -> None:
    with SocketSwitch(1) as switch, bound_udp() as taken:
        local = f"127.0.0.1:{taken.getsockname()[1]}"
        transport = ina.TransportConfig("udp", local, switch.configs[0].transport.switch)
        with pytest.raises(ina.ConfigError, match=f"cannot open {local}.*Address already in use"):
            ina.Communicator(ina.JobConfig(7, 0, 1, 32, transport))


def test_without_its_compiled_part_the_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "library_path", lambda: Path("/nowhere/_ina.so"))
    remedy = r"cannot be loaded .*hostlib\._native\.build"
    with SocketSwitch(1) as switch, pytest.raises(ina.NativeMissing, match=remedy):
        ina.Communicator(switch.configs[0])
