"""A switch that does not let its counters be written: jobs still seem to start at zero."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from controller import Member, Part, connect
from p4src.messages import p4runtime_pb2_grpc
from tests.controller import single
from tests.controller.conftest import LANES, Served, over_p4runtime
from tests.controller.frames import gradient


class ReadOnlyCounters(p4runtime_pb2_grpc.P4RuntimeServicer):
    """Passes everything on to a real switch but writes of counters."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self._switch = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)

    def Write(self, request: Any, context: Any) -> Any:
        if any(u.entity.WhichOneof("entity") == "counter_entry" for u in request.updates):
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "counters are read-only")
        return self._switch.Write(request)

    def Read(self, request: Any, context: Any) -> Iterator[Any]:
        yield from self._switch.Read(request)

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        return self._switch.GetForwardingPipelineConfig(request)

    def StreamChannel(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        yield from self._switch.StreamChannel(requests)


@pytest.fixture
def address(running: Served) -> Iterator[str]:
    threads = ThreadPoolExecutor(8)
    server = grpc.server(threads)
    servicer = ReadOnlyCounters(running.address)
    p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
    threads.shutdown()
    servicer.channel.close()


@over_p4runtime
def test_counts_are_since_the_admission(address: str, running: Served) -> None:
    job = Part((Member(0, 0, "02:00:00:00:00:01", "10.0.0.1", 9000),), 64)
    with connect(address) as controller:
        for _ in range(2):
            admission = single.admit(controller, job)
            running.switch.inject(0, [gradient(admission, 0, 0, [1] * LANES)])
            assert controller.counters(admission.job)["completed"] == 1
            single.remove(controller, admission)
    running.switch.drain(0)
