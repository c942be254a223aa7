"""Mastership of one switch: a lock between controllers that do not know each other.

A switch takes writes only from its primary controller, the one with the highest election id it has
seen. Our controllers are primary just while they write. A controller asks first who is primary,
with no election id; if there is none, it claims one more than the highest. Two that claim at once
claim the same number, and the switch ends the later one's stream: that one asks again. So a claim
never takes the switch from a primary that is still there, and a controller that dies lets go of it.
A claim may come late, when others have had their turn meanwhile: then the switch takes it, but whoever saw
them leave claims more. So it does not count, and the controller claims again.

If a controller has claimed the highest possible id, P4Runtime admits no lower one until the switch
restarts. Then all claim that id: they still take turns, but the switch cannot distinguish a late write of
the last primary, under way when its stream ended, from a write of the next one.

BMv2 promotes the next controller itself, and treats a missing election id as 0: a controller that
asks may become primary at once, which also works.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from controller.errors import NotPrimary, SwitchError, Unreachable
from p4src.messages import code_pb2
from p4src.messages import p4runtime_pb2 as p4

HIGHEST_ID = (1 << 128) - 1
"""Election ids have 128 bits."""

_PAUSE_S = 0.02
"""Mean pause before asking again after the switch ended a stream because of a claim at the same time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a stream by the switch; `code` is None if there was no error."""

    code: grpc.StatusCode | None
    message: str


class ArbitrationStream:
    """A StreamChannel on which a controller asks for mastership, and keeps it while the stream is open."""

    def __init__(self, stub: Any, device_id: int) -> None:
        self.election_id: int | None = None
        self._device_id = device_id
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = stub.StreamChannel(self._outgoing())
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, election_id: int | None) -> None:
        """Send a MasterArbitrationUpdate; an election id of None asks for the primary and claims nothing."""
        update = p4.MasterArbitrationUpdate(device_id=self._device_id)
        if election_id is not None:
            update.election_id.high = election_id >> 64
            update.election_id.low = election_id & (2**64 - 1)
        self.election_id = election_id
        self._requests.put(p4.StreamMessageRequest(arbitration=update))

    def answer(self, timeout_s: float) -> Any:
        """Wait for the next MasterArbitrationUpdate or `Ended`. Raises queue.Empty."""
        return self._answers.get(timeout=max(0.0, timeout_s))

    def release(self) -> None:
        """Close the stream and wait until the switch has noticed."""
        self._requests.put(None)
        self._reader.join(2.0)
        self._call.cancel()

    def _outgoing(self) -> Iterator[Any]:
        while (request := self._requests.get()) is not None:
            yield request

    def _read(self) -> None:
        try:
            for response in self._call:
                if response.WhichOneof("update") == "arbitration":
                    self._answers.put(response.arbitration)
            self._answers.put(Ended(None, ""))
        except grpc.RpcError as error:
            self._answers.put(Ended(error.code(), error.details() or ""))


def acquire(stub: Any, device_id: int, address: str, *, timeout_s: float) -> ArbitrationStream:
    """Become the primary controller of a device; return the stream, which must stay open meanwhile.

    Args:
        stub: The P4Runtime stub.
        device_id: The device.
        address: The server's address, for error messages.
        timeout_s: How long to wait for another controller to let go, and for answers.

    Raises NotPrimary if another controller stays primary for `timeout_s`, Unreachable if the switch does not
    answer, SwitchError if it refuses the stream.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        stream = ArbitrationStream(stub, device_id)
        try:
            if _claim(stream, address, deadline):
                return stream
        except BaseException:
            stream.release()
            raise
        stream.release()
        time.sleep(_PAUSE_S * 2 * random.random())


def _claim(stream: ArbitrationStream, address: str, deadline: float) -> bool:
    """Wait for mastership: return True once the stream has it, False if it has to be opened anew."""
    stream.ask(None)
    holder: int | None = None
    answered = False
    while True:
        try:
            answer = stream.answer(deadline - time.monotonic())
        except queue.Empty:
            if not answered:
                raise Unreachable(f"the switch at {address} does not answer on its stream") from None
            raise NotPrimary(
                f"another controller (election id {holder}) keeps the switch at {address}"
            ) from None
        answered = True
        if isinstance(answer, Ended):
            if answer.code is grpc.StatusCode.INVALID_ARGUMENT and time.monotonic() < deadline:
                return False
            if answer.code is grpc.StatusCode.UNAVAILABLE:
                raise Unreachable(f"the switch at {address} is gone: {answer.message}")
            raise SwitchError(f"the switch at {address} ended the stream: {answer.code}: {answer.message}")
        highest = answer.election_id.high << 64 | answer.election_id.low
        match answer.status.code:
            case code_pb2.OK if stream.election_id in (None, highest):
                return True
            case code_pb2.OK:  # of an earlier claim, which the next controller may outbid
                holder = highest
            case code_pb2.NOT_FOUND:
                stream.ask(min(highest + 1, HIGHEST_ID))
            case _:
                holder = highest
