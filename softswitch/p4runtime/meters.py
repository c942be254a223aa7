"""Writing and reading MeterEntry, and the meter configurations in table entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from p4src.messages import p4runtime_pb2 as p4
from softswitch.engine.meters import MeterRates, MeterReading
from softswitch.p4runtime import indices
from softswitch.p4runtime.errors import InvalidArgument, Unimplemented
from softswitch.p4runtime.schema import Meter
from softswitch.p4runtime.state import Bundle


def write(bundle: Bundle, kind: int, message: Any) -> None:
    """Set the rates of one cell or, without an index, of all cells; without a config all is green."""
    meter = indices.known(bundle.schema, "meter", bundle.schema.meters, message.meter_id)
    if kind != p4.Update.MODIFY:
        raise InvalidArgument(f"the cells of '{meter.name}' always exist: they can only be modified")
    configured = rates(message.config) if message.HasField("config") else None
    refuse_counts(message)
    for index in indices.chosen(meter, message):
        bundle.pipeline.configure_meter(meter.name, index, configured)


def read(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one cell, all cells of one meter, or (meter id 0) all cells of all meters."""

    def cell(meter: Meter, index: int) -> Any:
        message = p4.MeterEntry(meter_id=meter.id, index=p4.Index(index=index))
        describe(message, bundle.pipeline.read_meter(meter.name, index), "config")
        if request.HasField("counter_data"):
            describe_counts(message.counter_data, bundle.pipeline.read_meter(meter.name, index))
        return message

    return indices.cells(bundle.schema, "meter", bundle.schema.meters, request, cell)


def rates(config: Any) -> MeterRates:
    """Decode a ``MeterConfig``. Raises InvalidArgument."""
    for name in ("cir", "cburst", "pir", "pburst"):
        if getattr(config, name) < 0:
            raise InvalidArgument(f"{name} is {getattr(config, name)}; rates and bursts are 0 or more")
    given = MeterRates(config.cir, config.cburst, config.pir, config.pburst)
    if given.cir > given.pir:
        raise InvalidArgument(f"cir {given.cir} is above pir {given.pir}: peak is the higher rate")
    if config.eburst:
        raise InvalidArgument(f"eburst is {config.eburst}; meters here have two rates: give pir and pburst")
    return given


def describe(message: Any, reading: MeterReading, field: str) -> None:
    """Fill in the ``MeterConfig`` of `message` at `field`, unless the meter has none."""
    if reading.rates is not None:
        config = getattr(message, field)
        config.SetInParent()
        config.cir, config.cburst = reading.rates.cir, reading.rates.cburst
        config.pir, config.pburst = reading.rates.pir, reading.rates.pburst


def describe_counts(message: Any, reading: MeterReading) -> None:
    """Fill in a ``MeterCounterData``."""
    for colour, (packets, bytes_) in zip(("green", "yellow", "red"), reading.seen, strict=True):
        getattr(message, colour).CopyFrom(p4.CounterData(packet_count=packets, byte_count=bytes_))


def refuse_counts(message: Any, field: str = "counter_data") -> None:
    """Raise Unimplemented if a write sets the counts of a meter, which only packets change."""
    if message.HasField(field):
        raise Unimplemented(f"{field} of a meter can be read, not written")
