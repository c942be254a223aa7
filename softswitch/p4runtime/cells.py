"""Write and read the cells of indirect counters, meters and registers; convert meters' rates and counts.

Also converts ``P4Data``, the values of registers and digests, from and to scalars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from p4src.messages import p4data_pb2
from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import ir
from softswitch.compiler.ir import fold
from softswitch.engine.pipeline import MeterRates, MeterReading
from softswitch.p4runtime import translate
from softswitch.p4runtime.errors import InvalidArgument, OutOfRange, Unimplemented
from softswitch.p4runtime.state import Bundle


def encode_data(data: ir.DataType, values: Iterator[int]) -> Any:
    """Consume the scalars of one value of type `data` from `values`; return them as a ``P4Data``."""
    message = p4data_pb2.P4Data()
    match data.kind:
        case "struct" | "tuple" as kind:
            parts = getattr(message, kind)
            parts.SetInParent()
            parts.members.extend(encode_data(member, values) for _, member in data.members)
        case "header":
            message.header.is_valid = True
            message.header.bitstrings.extend(_bitstring(scalar, next(values)) for _, scalar in data.leaves())
        case "enum":
            message.enum = data.values[next(values)][0]
        case "error":
            assert isinstance(data.scalar, ir.Enum)
            message.error = data.scalar.members[next(values)]
        case "serializable_enum":
            message.enum_value = _bitstring(data.scalar, next(values))
        case _ if isinstance(data.scalar, ir.Bool):
            message.bool = bool(next(values))
        case _:
            message.bitstring = _bitstring(data.scalar, next(values))
    return message


def decode_data(data: ir.DataType, message: Any, what: str) -> list[int]:
    """Decode a ``P4Data`` of type `data` into scalars; `what` names it in errors. Raises InvalidArgument."""
    given = message.WhichOneof("data")
    if data.kind in ("struct", "tuple"):
        members = getattr(message, data.kind).members
        if given != data.kind or len(members) != len(data.members):
            raise InvalidArgument(f"{what} is a {data.kind} of {len(data.members)} members, not {given}")
        pairs = zip(data.members, members, strict=True)
        return [value for (name, part), sent in pairs for value in decode_data(part, sent, f"{what}.{name}")]
    wanted = {"serializable_enum": "enum_value", "header": "header", "enum": "enum", "error": "error"}.get(
        data.kind, "bool" if isinstance(data.scalar, ir.Bool) else "bitstring"
    )
    if given != wanted or wanted in ("header", "enum", "error"):
        raise InvalidArgument(f"{what} takes a {wanted}, not {given or 'nothing'}")
    if wanted == "bool":
        return [int(message.bool)]
    assert isinstance(data.scalar, ir.Bits)
    return [fold.wrap(data.scalar, translate.decode(getattr(message, wanted), data.scalar.width, what))]


def _bitstring(type_: ir.Scalar | None, value: int) -> bytes:
    width = type_.width if isinstance(type_, ir.Bits) else 1
    return translate.encode(value & ((1 << width) - 1))


def write_counter(bundle: Bundle, kind: int, message: Any) -> None:
    """Set one cell or, without an index, all cells of a counter."""
    counter = _written(bundle, "counter", kind, message)
    cells = _chosen(counter, message)
    if not message.HasField("data"):
        return
    packets, bytes_ = counts(message.data)
    for cell in cells:
        bundle.pipeline.write_counter(counter.name, cell, packets, bytes_)


def read_counters(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one cell, all cells of one counter, or (counter id 0) all cells of all counters."""
    for counter, index in _cells(bundle, "counter", request):
        packets, bytes_ = bundle.pipeline.read_counter(counter.name, index.index)
        data = p4.CounterData(packet_count=packets, byte_count=bytes_)
        yield p4.CounterEntry(counter_id=counter.id, index=index, data=data)


def write_register(bundle: Bundle, kind: int, message: Any) -> None:
    """Set one cell of a register or, without an index, all cells.

    Raises InvalidArgument, also for values with headers, enums or errors, which can only be read.
    """
    register = _written(bundle, "register", kind, message)
    data = bundle.program.register_arrays[register.name].data
    values = decode_data(data, message.data, f"a cell of '{register.name}'")
    for index in _chosen(register, message):
        bundle.write_register(register.name, index, values)


def read_registers(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one cell, all cells of one register, or (register id 0) all cells of all registers."""
    for register, index in _cells(bundle, "register", request):
        data = bundle.program.register_arrays[register.name].data
        values = iter(bundle.read_register(register.name, index.index))
        yield p4.RegisterEntry(register_id=register.id, index=index, data=encode_data(data, values))


def write_meter(bundle: Bundle, kind: int, message: Any) -> None:
    """Set the rates of one cell or, without an index, of all cells; without a config, remove the rates."""
    meter = _written(bundle, "meter", kind, message)
    configured = rates(message.config) if message.HasField("config") else None
    refuse_counts(message)
    for index in _chosen(meter, message):
        bundle.pipeline.configure_meter(meter.name, index, configured)


def read_meters(bundle: Bundle, request: Any) -> Iterator[Any]:
    """Yield one cell, all cells of one meter, or (meter id 0) all cells of all meters."""
    for meter, index in _cells(bundle, "meter", request):
        message = p4.MeterEntry(meter_id=meter.id, index=index)
        reading = bundle.pipeline.read_meter(meter.name, index.index)
        describe(message, reading, "config")
        if request.HasField("counter_data"):
            describe_counts(message.counter_data, reading)
        yield message


def _written(bundle: Bundle, what: str, kind: int, message: Any) -> Any:
    """Return the array whose cells an update sets. Raises InvalidArgument if `kind` is not MODIFY."""
    array = bundle.schema.find(what, getattr(message, f"{what}_id"))
    if kind != p4.Update.MODIFY:
        raise InvalidArgument(f"the cells of '{array.name}' always exist: they can only be modified")
    return array


def _chosen(array: Any, message: Any) -> list[int] | range:
    """Return the index in a message or, if it has none, all indices of the array."""
    if not message.HasField("index"):
        return range(array.size)
    index: int = message.index.index
    if index < 0:
        raise InvalidArgument(f"index {index} of '{array.name}' is negative")
    if index >= array.size:
        raise OutOfRange(f"index {index} of '{array.name}' is beyond the last index, {array.size - 1}")
    return [index]


def _cells(bundle: Bundle, what: str, request: Any) -> Iterator[tuple[Any, p4.Index]]:
    """Yield (array, index) of one cell, of all cells of one array or, for id 0, of all arrays' cells."""
    id_ = getattr(request, f"{what}_id")
    arrays: Iterable[Any] = [bundle.schema.find(what, id_)] if id_ else bundle.schema.by_kind()[what].values()
    for array in arrays:
        for index in _chosen(array, request) if id_ else range(array.size):
            yield array, p4.Index(index=index)


def counts(data: Any) -> tuple[int, int]:
    """Return a counter's packets and bytes. Raises InvalidArgument for negative ones."""
    packets, bytes_ = data.packet_count, data.byte_count
    if packets < 0 or bytes_ < 0:
        raise InvalidArgument(f"a counter must be 0 or more; got {packets} packets, {bytes_} bytes")
    return packets, bytes_


def rates(config: Any) -> MeterRates:
    """Decode a ``MeterConfig``. Raises InvalidArgument."""
    for name in ("cir", "cburst", "pir", "pburst"):
        if getattr(config, name) < 0:
            raise InvalidArgument(f"{name} is {getattr(config, name)}; rates and bursts are 0 or more")
    given = MeterRates(config.cir, config.cburst, config.pir, config.pburst)
    if given.cir > given.pir:
        raise InvalidArgument(
            f"cir {given.cir} is above pir {given.pir}; the peak rate must be at least the committed rate"
        )
    if config.eburst:
        raise InvalidArgument(f"eburst is {config.eburst}; it must be 0: set pir and pburst instead")
    return given


def describe(message: Any, reading: MeterReading, field: str) -> None:
    """Set the ``MeterConfig`` in `field` of `message` to the meter's rates, if the meter has rates."""
    if reading.rates is not None:
        config = getattr(message, field)
        config.SetInParent()
        config.cir, config.cburst = reading.rates.cir, reading.rates.cburst
        config.pir, config.pburst = reading.rates.pir, reading.rates.pburst


def describe_counts(message: Any, reading: MeterReading) -> None:
    """Set a ``MeterCounterData`` to the packets and bytes that the meter has marked with each colour."""
    for colour, (packets, bytes_) in zip(("green", "yellow", "red"), reading.seen, strict=True):
        getattr(message, colour).CopyFrom(p4.CounterData(packet_count=packets, byte_count=bytes_))


def refuse_counts(message: Any, field: str = "counter_data") -> None:
    """Raise Unimplemented if a write sets a meter's counts, as only packets change them."""
    if message.HasField(field):
        raise Unimplemented(f"{field} of a meter can be read, not written")
