"""Writing and reading CounterEntry: cells of indirect counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime import indices
from softswitch.p4runtime.errors import InvalidArgument
from softswitch.p4runtime.schema import Counter
from softswitch.p4runtime.state import Bundle


def write(bundle: Bundle, kind: int, message: Any) -> None:
    """Set one cell or, without an index, all cells of a counter."""
    counter = indices.known(bundle.schema, "counter", bundle.schema.counters, message.counter_id)
    if kind != p4.Update.MODIFY:
        raise InvalidArgument(f"the cells of '{counter.name}' always exist: they can only be modified")
    cells = indices.chosen(counter, message)
    if not message.HasField("data"):
        return
    packets, bytes_ = message.data.packet_count, message.data.byte_count
    if packets < 0 or bytes_ < 0:
        raise InvalidArgument(f"counters start at 0; got {packets} packets, {bytes_} bytes")
    for cell in cells:
        bundle.pipeline.write_counter(counter.name, cell, packets, bytes_)


def read(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one cell, all cells of one counter, or (counter id 0) all cells of all counters."""

    def cell(counter: Counter, index: int) -> Any:
        packets, bytes_ = bundle.pipeline.read_counter(counter.name, index)
        data = p4.CounterData(packet_count=packets, byte_count=bytes_)
        return p4.CounterEntry(counter_id=counter.id, index=p4.Index(index=index), data=data)

    return indices.cells(bundle.schema, "counter", bundle.schema.counters, request, cell)
