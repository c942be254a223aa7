"""Writing and reading CounterEntry: cells of indirect counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.p4runtime.errors import InvalidArgument, OutOfRange
from softswitch.p4runtime.schema import Counter
from softswitch.p4runtime.state import Bundle


def write(bundle: Bundle, kind: int, message: Any) -> None:
    """Set one cell or, without an index, all cells of a counter."""
    counter = _counter(bundle, message.counter_id)
    if kind != p4.Update.MODIFY:
        raise InvalidArgument(f"the cells of '{counter.name}' always exist: they can only be modified")
    cells = [_index(counter, message)] if message.HasField("index") else range(counter.size)
    if not message.HasField("data"):
        return
    packets, bytes_ = message.data.packet_count, message.data.byte_count
    if packets < 0 or bytes_ < 0:
        raise InvalidArgument(f"counters start at 0; got {packets} packets, {bytes_} bytes")
    for cell in cells:
        bundle.pipeline.write_counter(counter.name, cell, packets, bytes_)


def read(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one cell, all cells of one counter, or (counter id 0) all cells of all counters."""
    if request.counter_id == 0:
        for counter in bundle.schema.counters.values():
            yield from _all_cells(bundle, counter)
        return
    counter = _counter(bundle, request.counter_id)
    if not request.HasField("index"):
        yield from _all_cells(bundle, counter)
        return
    index = _index(counter, request)
    yield _cell(counter, index, bundle.pipeline.read_counter(counter.name, index))


def _counter(bundle: Bundle, counter_id: int) -> Counter:
    if counter_id not in bundle.schema.counters:
        raise InvalidArgument(bundle.schema.describe_unknown("counter", counter_id))
    return bundle.schema.counters[counter_id]


def _index(counter: Counter, message: Any) -> int:
    index: int = message.index.index
    if index < 0:
        raise InvalidArgument(f"index {index} of '{counter.name}' is negative")
    if index >= counter.size:
        raise OutOfRange(f"index {index} of '{counter.name}' is beyond its last, {counter.size - 1}")
    return index


def _all_cells(bundle: Bundle, counter: Counter) -> Iterator[Any]:
    for index, cell in enumerate(bundle.pipeline.read_counters(counter.name)):
        yield _cell(counter, index, cell)


def _cell(counter: Counter, index: int, value: tuple[int, int]) -> Any:
    packets, bytes_ = value
    return p4.CounterEntry(
        counter_id=counter.id,
        index=p4.Index(index=index),
        data=p4.CounterData(packet_count=packets, byte_count=bytes_),
    )
