"""Whole workers on real loopback sockets, one thread per rank, with the reference switch."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hostlib as ina
from hostlib.core.kernel import KernelName
from hostlib.errors import Interrupted
from hostlib.rendezvous import Rendezvous, RendezvousPeers
from tests.hostlib.socket_switch import SocketSwitch

Body = Callable[[ina.Communicator], Any]


def on_every_rank(switch: SocketSwitch, body: Body, *, kernel: KernelName = "native") -> list[Any]:
    """Run `body` as each rank; return what each returned or raised."""

    def run(config: ina.JobConfig) -> Any:
        communicator = ina.Communicator(config, kernel=kernel)
        try:
            return body(communicator)
        except ina.InaError as error:
            return error
        finally:
            communicator.close()

    with ThreadPoolExecutor(len(switch.configs)) as pool:
        return list(pool.map(run, switch.configs))


@pytest.fixture(params=["native", "numpy"])
def kernel(request: pytest.FixtureRequest) -> KernelName:
    name: KernelName = request.param
    return name


@pytest.mark.parametrize("framed", [True, False], ids=["loopback", "udp"])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_sums_of_all_kinds(kernel: KernelName, loss: float, framed: bool) -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        floats = np.full((40, 30), comm.rank + 0.5, np.float32)
        ints = np.arange(1000, dtype=np.int32)
        doubles = np.full(70, 1e-3 * (comm.rank + 1))
        halves = np.full(5, comm.rank, np.float16)
        comm.allreduce(floats, out=floats)
        comm.barrier()
        return [
            floats,
            comm.allreduce(ints.T, name="ints"),
            comm.allreduce(doubles, op="average"),
            comm.allreduce(halves),
            comm.allreduce(np.empty(0, np.float32)),
            comm.allreduce(2.5),
        ]

    with SocketSwitch(3, loss=loss, framed=framed) as switch:
        outcomes = on_every_rank(switch, body, kernel=kernel)
    for floats, ints, doubles, halves, empty, scalar in outcomes:
        assert np.array_equal(floats, np.full((40, 30), 4.5, np.float32))
        assert np.array_equal(ints, 3 * np.arange(1000))
        assert np.allclose(doubles, 2e-3, rtol=1e-6)
        assert doubles.dtype == np.float64
        assert np.array_equal(halves, np.full(5, 3, np.float16))
        assert empty.shape == (0,)
        assert scalar == 7.5
    assert switch.largest_batch > 1, "segmentation offload was not used"


def test_asynchronous_collectives_run_in_order_beside_blocking_ones() -> None:
    def body(comm: ina.Communicator) -> list[float]:
        handles = [comm.allreduce_async(np.full(500, i, np.float32), name=f"t{i}") for i in range(20)]
        between = comm.allreduce(np.ones(3, np.float32), name="between")
        handles.append(comm.allreduce_async(np.ones(2, np.float32), op="average"))
        results = [float(handle.wait(timeout=20)[0]) for handle in handles]
        assert all(handle.done() for handle in handles)
        assert handles[3].result()[0] == 6.0
        return [*results, float(between[0])]

    with SocketSwitch(2) as switch:
        outcomes = on_every_rank(switch, body)
    assert outcomes == [[*(2.0 * i for i in range(20)), 1.0, 2.0]] * 2


def test_close_finishes_what_was_submitted() -> None:
    def body(comm: ina.Communicator) -> list[ina.Handle]:
        return [comm.allreduce_async(np.ones(2000, np.float32)) for _ in range(5)]

    with SocketSwitch(2) as switch:
        for handles in on_every_rank(switch, body):
            assert [handle.result()[0] for handle in handles] == [2.0] * 5


def test_numbers_that_cannot_be_summed_raise_everywhere_and_the_job_goes_on(kernel: KernelName) -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        values = np.ones(100, np.float32)
        if comm.rank == 1:
            values[50] = np.nan
        seen: list[Any] = []
        for call in (
            lambda: comm.allreduce(values),
            lambda: comm.allreduce(np.full(40, 2**30, np.int32)),
            lambda: comm.allreduce(values, nonfinite="propagate"),
            lambda: comm.allreduce(np.full(3, 7, np.int32)),
        ):
            try:
                seen.append(call())
            except ina.InaError as error:
                seen.append(error)
        return seen

    with SocketSwitch(2) as switch:
        outcomes = on_every_rank(switch, body, kernel=kernel)
    for nonfinite, overflow, propagated, fine in outcomes:
        assert isinstance(nonfinite, ina.NonFiniteError)
        assert nonfinite.element == 32
        assert isinstance(overflow, ina.SumOverflow)
        assert isinstance(overflow, OverflowError)
        assert "job 7, PSN 8..9" in str(overflow)
        assert np.isnan(propagated[32:64]).all()
        assert not np.isnan(propagated[:32]).any()
        assert fine.tolist() == [14, 14, 14]


def test_different_lengths_raise_on_every_rank_and_end_the_job() -> None:
    def body(comm: ina.Communicator) -> tuple[str, str]:
        with pytest.raises(ina.RanksDisagree) as first:
            comm.allreduce(np.ones(100 + comm.rank, np.float32), name="w")
        with pytest.raises(ina.RanksDisagree) as second:
            comm.allreduce_async(np.ones(3, np.float32)).wait(timeout=5)
        return str(first.value), str(second.value)

    with SocketSwitch(2) as switch:
        outcomes = on_every_rank(switch, body)
    for rank, (first, second) in enumerate(outcomes):
        assert first == second
        assert first.startswith("job 7, PSN 0..7: ranks disagree")
        assert first.endswith(f"here: sum of {100 + rank} float32 'w'")


def test_a_switch_that_is_not_there_is_named_with_the_job(kernel: KernelName) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        transport = ina.TransportConfig("loopback", "127.0.0.1:0", f"127.0.0.1:{free.getsockname()[1]}")
    config = ina.JobConfig(9, 0, 2, 32, transport, timeout_s=0.4)
    communicator = ina.Communicator(config, kernel=kernel)
    started = time.monotonic()
    with pytest.raises(ina.PeerTimeout, match=r"job 9, PSN 0\.\.0: no answer from the switch"):
        communicator.allreduce(np.ones(3, np.int32))
    assert time.monotonic() - started < 5
    communicator.close()


def test_the_death_of_a_rank_that_the_launcher_saw_reaches_the_others_at_once() -> None:
    with SocketSwitch(2) as switch, Rendezvous(job=7, size=2) as meeting:

        def run(rank: int) -> Any:
            peers = RendezvousPeers(meeting.address, job=7, rank=rank, size=2)
            communicator = ina.Communicator(switch.configs[rank], peers)
            try:
                communicator.barrier()
                if rank == 1:
                    meeting.ended(1, 137, "killed by SIGKILL")
                else:
                    communicator.allreduce(np.ones(3, np.float32))
            except ina.PeerLost as error:
                return error
            finally:
                communicator.close()

        started = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            error, _ = pool.map(run, range(2))
        assert time.monotonic() - started < 3
    assert str(error) == "job 7, PSN 1..2: lost rank 1: killed by SIGKILL"
    assert error.missing == (1,)


def test_an_interrupt_ends_the_wait_and_the_job() -> None:
    with SocketSwitch(2) as switch:
        communicator = ina.Communicator(switch.configs[0])
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            communicator.allreduce(np.ones(3, np.float32))
        with pytest.raises(Interrupted, match="sum of 3 float32 was abandoned: KeyboardInterrupt"):
            communicator.allreduce(np.ones(3, np.float32))
        communicator.close()
        timer.join()


def test_arguments_are_checked_before_anything_is_sent() -> None:
    communicator = ina.Communicator(None)
    with pytest.raises(ina.UnsupportedArray, match="op is 'max'"):
        communicator.allreduce(np.ones(3), op="max")  # type: ignore[arg-type]
    with pytest.raises(ina.UnsupportedArray, match="nonfinite is 'ignore'"):
        communicator.allreduce(np.ones(3), nonfinite="ignore")  # type: ignore[arg-type]
    with pytest.raises(ina.UnsupportedArray, match="average of int32"):
        communicator.allreduce(np.ones(3, np.int32), op="average")
    communicator.close()


def test_a_handle_can_be_asked_before_it_is_done() -> None:
    with SocketSwitch(2) as switch:
        one, other = (ina.Communicator(config) for config in switch.configs)
        handle = one.allreduce_async(np.ones(3, np.float32))
        with pytest.raises(TimeoutError, match=r"sum of 3 float32 is not done within 0\.01 s"):
            handle.wait(timeout=0.01)
        assert not handle.done()
        with pytest.raises(RuntimeError, match="not done"):
            handle.result()
        other.allreduce(np.ones(3, np.float32))
        assert handle.wait(timeout=5).tolist() == [2, 2, 2]
        one.close()
        other.close()
        with pytest.raises(ina.NotInitialized):
            one.allreduce(np.ones(3))


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
    with pytest.raises(ina.NonFiniteError):
        ina.allreduce(np.array([1.0, np.inf]))
    ina.barrier()
    assert ina.statistics() == {}
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
    assert statistics["collectives"] == 1
    assert statistics["elements"] == 4
    assert statistics["packets_sent"] == statistics["packets_results"] == 1


def test_a_taken_address_is_refused() -> None:
    with SocketSwitch(1) as switch, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        local = f"127.0.0.1:{taken.getsockname()[1]}"
        transport = ina.TransportConfig("udp", local, switch.configs[0].transport.switch)
        with pytest.raises(ina.ConfigError, match=f"cannot open {local}.*Address already in use"):
            ina.Communicator(ina.JobConfig(7, 0, 1, 32, transport))


def test_without_the_compiled_kernel_a_warning_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    from hostlib import _native

    monkeypatch.setattr(_native, "library_path", lambda: Path("/nowhere/_ina.so"))
    with SocketSwitch(1) as switch:
        with pytest.warns(RuntimeWarning, match=r"slow: .*hostlib\._native\.build"):
            communicator = ina.Communicator(switch.configs[0])
        assert communicator.allreduce(np.full(4, 2, np.int32)).tolist() == [2, 2, 2, 2]
        communicator.close()
        with pytest.raises(_native.NativeMissing):
            ina.Communicator(switch.configs[0], kernel="native")
