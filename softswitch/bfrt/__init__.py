"""BF Runtime for the embedded switch: the interface that published controllers use to fill Tofino's tables.

======================  =============================================================
`values`                descriptions of tables (JSON); entries, decoded from and encoded as messages
`matching`              the program's match-action tables, through P4Runtime's entities; registers, counters
`switch_tables`         the switch's ports, multicast groups, nodes and exclusions; mirror sessions
======================  =============================================================

`docs/reference/tofino.md` lists the served requests. Requests need no role: each client that reaches the port
controls the switch.

This module is the service on gRPC; it alone in the folder knows gRPC's status codes. A refused update or read
becomes an error with its position in the batch, and the call ends with status UNKNOWN, as clients expect from
the chip's drivers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from p4src.messages import bfruntime
from softswitch.bfrt.matching import cells, matching
from softswitch.bfrt.switch_tables import port_metadata, ports, replication
from softswitch.bfrt.values import Rows, described
from softswitch.p4runtime import errors
from softswitch.p4runtime.errors import RequestError
from softswitch.p4runtime.server import CODES, MAX_MESSAGE, abort_batch
from softswitch.p4runtime.state import Bundle, Device

__all__ = ["BfrtService"]


PREFIX = "pipe."
"""The prefix of a program's table names: the name of its pipeline."""

_THREADS = 20
_ENTITIES_PER_MESSAGE = 512
_GRACE_S = 2.0
_SHOWN = 20
"""Maximum number of errors in the answer to a batch; a longer answer could exceed the clients' size limit."""


class BfrtService:
    """A BF Runtime server for one device. It listens until `close`.

    `address` is ``host:port``; with port 0 the service takes a free port, whose number is then in `port`.
    Clients must bind to the program under the name `name`; if `name` is None, they may use any name.
    Raises OSError if the address is not available.
    """

    def __init__(self, device: Device, *, address: str = "127.0.0.1:0", name: str | None = None) -> None:
        servicer = _BfrtServicer(device, name)
        unary = grpc.unary_unary_rpc_method_handler
        methods = {
            "Write": unary(
                servicer.write, bfruntime.WriteRequest.FromString, bfruntime.WriteResponse.SerializeToString
            ),
            "Read": grpc.unary_stream_rpc_method_handler(
                servicer.read, bfruntime.ReadRequest.FromString, bfruntime.ReadResponse.SerializeToString
            ),
            "SetForwardingPipelineConfig": unary(
                servicer.set_config,
                bfruntime.SetConfigRequest.FromString,
                bfruntime.SetConfigResponse.SerializeToString,
            ),
            "GetForwardingPipelineConfig": unary(
                servicer.get_config,
                bfruntime.GetConfigRequest.FromString,
                bfruntime.GetConfigResponse.SerializeToString,
            ),
            "StreamChannel": grpc.stream_stream_rpc_method_handler(
                servicer.stream,
                _decoded,
                bfruntime.StreamMessageResponse.SerializeToString,
            ),
        }
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="bfrt")
        self._server = grpc.server(
            self._threads,
            options=[("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.so_reuseport", 0)],
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(bfruntime.SERVICE, methods),)
        )
        try:
            self.port: int = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        self.address = f"{address.rpartition(':')[0]}:{self.port}"
        self._server.start()

    def close(self) -> None:
        """End all streams and stop listening; requests in progress have some seconds to finish."""
        self._server.stop(grace=_GRACE_S).wait(2 * _GRACE_S)
        self._threads.shutdown(wait=False)


def _decoded(data: bytes) -> Any:
    """Decode a message of a stream; return a DecodeError if the message is invalid.

    The error is returned, not raised: gRPC would not end the stream after an error raised here.
    """
    try:
        return bfruntime.StreamMessageRequest.FromString(data)
    except DecodeError as error:
        return error


class _BfrtServicer:
    def __init__(self, device: Device, name: str | None) -> None:
        self._device = device
        self._name = name
        self._bound: dict[int, str] = {}
        fixed = [*ports(device.switch), *replication(device.switch)]
        self._fixed: dict[int, Rows] = {rows.table.id: rows for rows in fixed}
        self._of_program: tuple[Bundle, dict[int, Rows]] | None = None

    # ------------------------------------------------------------------ programs

    def set_config(self, request: Any, context: Any) -> Any:
        """Bind a client to the running program. This call cannot load a program."""
        if request.action != bfruntime.BIND:
            context.abort(
                grpc.StatusCode.UNIMPLEMENTED,
                f"action {request.action}: this switch takes no binaries of the chip's compiler; "
                "load the P4 source by --program or P4Runtime",
            )
        names = [config.p4_name for config in request.config]
        if len(names) != 1 or not names[0]:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "want one config, with the p4_name to bind to")
        if self._name is not None and names[0].lower() != self._name.lower():
            context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"this switch does not run program '{names[0]}' but '{self._name}' only",
            )
        with self._device.mutex:
            self._bound[request.client_id] = names[0]
        return bfruntime.SetConfigResponse()

    def get_config(self, request: Any, context: Any) -> Any:
        """Return the descriptions (JSON) of all tables of the program and of the switch."""
        try:
            with self._device.mutex:
                of_program = self._program_rows()
                name = self._bound.get(request.client_id, self._name or "program")
        except RequestError as error:
            context.abort(CODES[type(error)], str(error))
        response = bfruntime.GetConfigResponse()
        response.config.add(p4_name=name, bfruntime_info=_info(of_program))
        response.non_p4_config.bfruntime_info = _info(self._fixed)
        return response

    def _program_rows(self) -> dict[int, Rows]:
        bundle = self._device.bundle
        if self._of_program is None or self._of_program[0] is not bundle:
            found = [
                *matching(self._device, bundle, PREFIX),
                *cells(self._device, bundle, PREFIX),
                *port_metadata(bundle.program, PREFIX),
            ]
            self._of_program = bundle, {rows.table.id: rows for rows in found}
        return self._of_program[1]

    def _rows(self, table_id: int) -> Rows:
        found = self._fixed.get(table_id) or self._program_rows().get(table_id)
        if found is None:
            raise errors.NotFound(f"there is no table with id {table_id:#x}; read the pipeline config again")
        return found

    # ------------------------------------------------------------------ entries

    def write(self, request: Any, context: Any) -> Any:
        """Apply a batch of updates in order."""
        if request.atomicity != bfruntime.CONTINUE_ON_ERROR and len(request.updates) > 1:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "batches are applied with CONTINUE_ON_ERROR only")
        with self._device.writing():
            outcomes = [errors.outcome(self._update, update) for update in request.updates]
        abort_batch(context, "written", outcomes, bfruntime.Error, _SHOWN)
        return bfruntime.WriteResponse()

    def _update(self, update: Any) -> None:
        match update.entity.WhichOneof("entity"):
            case "table_entry":
                entry = update.entity.table_entry
                self._rows(entry.table_id).write(update.type, entry)
            case "table_operation":
                operation = update.entity.table_operation
                table = self._rows(operation.table_id).table
                known = table.operations
                if operation.table_operations_type not in known:
                    listing = ", ".join(known) or "none"
                    message = f"operation '{operation.table_operations_type}' of '{table.name}'"
                    raise errors.Unimplemented(f"{message} is unknown; known are {listing}")
                # Nothing to do: counters and registers have no copies that could be outdated.
            case kind:
                raise errors.Unimplemented(
                    f"this switch does not support an update of a {kind or 'missing entity'}"
                )

    def read(self, request: Any, context: Any) -> Iterator[Any]:
        """Yield the entries that a request selects."""
        found: list[Any] = []
        with self._device.mutex:
            outcomes = [
                errors.outcome(lambda each: found.extend(self._entities(each)), entity)
                for entity in request.entities
            ]
        for start in range(0, len(found), _ENTITIES_PER_MESSAGE):
            yield bfruntime.ReadResponse(entities=found[start : start + _ENTITIES_PER_MESSAGE])
        abort_batch(context, "read", outcomes, bfruntime.Error, _SHOWN)

    def _entities(self, entity: Any) -> list[Any]:
        match entity.WhichOneof("entity"):
            case "table_entry":
                entry = entity.table_entry
                return [bfruntime.Entity(table_entry=e) for e in self._rows(entry.table_id).read(entry)]
            case "table_usage":
                found = bfruntime.Entity()
                found.table_usage.table_id = entity.table_usage.table_id
                found.table_usage.usage = self._rows(entity.table_usage.table_id).usage()
                return [found]
            case kind:
                raise errors.Unimplemented(
                    f"this switch does not support a read of a {kind or 'missing entity'}"
                )

    # ------------------------------------------------------------------ streams

    def stream(self, requests: Iterable[Any], context: Any) -> Iterator[Any]:
        """Confirm each subscription; send no notifications. The stream is open until the client ends it."""
        ended = threading.Event()
        context.add_callback(ended.set)
        for request in requests:
            if isinstance(request, DecodeError):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is no StreamMessageRequest")
            if request.WhichOneof("update") == "subscribe":
                response = bfruntime.StreamMessageResponse()
                response.subscribe.device_id = request.subscribe.device_id
                response.subscribe.status.code = 0
                yield response
            if ended.is_set():
                return


def _info(rows: dict[int, Rows]) -> bytes:
    return json.dumps(described(each.table for each in rows.values())).encode()
