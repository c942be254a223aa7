"""The messages of BF Runtime, the gRPC interface with which controllers fill Tofino's tables.

No package on PyPI has them, so this module defines the ones that `softswitch.bfrt` needs: a message is a line
with ``name:number:type`` for each field, ``*`` before the type of a repeated field, and the name of its oneof
after it. Enumerations are numbers. The messages are in a protobuf pool of their own, so that a client with
messages of the same names works in the same process.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "bfrt_proto.BfRuntime"

_MESSAGES = {
    "TargetDevice": "device_id:1:uint32 pipe_id:2:uint32 direction:3:uint32 prsr_id:4:uint32",
    "Error": "canonical_code:1:int32 message:2:string space:3:string code:4:int32",
    "Status": "code:1:int32 message:2:string",  # of google.rpc
    # ---- keys and data of entries
    "Exact": "value:1:bytes",
    "Ternary": "value:1:bytes mask:2:bytes",
    "Lpm": "value:1:bytes prefix_len:2:int32",
    "Range": "low:1:bytes high:2:bytes",
    "Optional": "value:1:bytes is_valid:2:bool",
    "KeyField": "field_id:1:uint32 exact:2:Exact:match_type ternary:3:Ternary:match_type "
    "lpm:4:Lpm:match_type range:5:Range:match_type optional:6:Optional:match_type",
    "TableKey": "fields:1:*KeyField",
    "IntArray": "val:1:*uint32",
    "BoolArray": "val:1:*bool",
    "StrArray": "val:1:*string",
    "DataField": "field_id:1:uint32 stream:2:bytes:value float_val:3:float:value str_val:4:string:value "
    "int_arr_val:5:IntArray:value bool_arr_val:6:BoolArray:value bool_val:8:bool:value "
    "str_arr_val:9:StrArray:value",
    "TableData": "action_id:1:uint32 fields:2:*DataField",
    "TableFlags": "from_hw:1:bool key_only:2:bool mod_del:3:bool reset_ttl:4:bool reset_stats:5:bool",
    "TableModIncFlag": "type:1:int32",
    "TableEntry": "table_id:1:uint32 key:2:TableKey:value handle_id:7:uint32:value data:3:TableData "
    "is_default_entry:4:bool table_mod_inc_flag:6:TableModIncFlag entry_tgt:8:TargetDevice "
    "table_flags:9:TableFlags",
    "TableUsage": "table_id:1:uint32 usage:2:uint32",
    "TableAttribute": "table_id:1:uint32",
    "TableOperation": "table_id:1:uint32 table_operations_type:2:string",
    "Entity": "table_entry:1:TableEntry:entity table_usage:2:TableUsage:entity "
    "table_attribute:3:TableAttribute:entity table_operation:4:TableOperation:entity",
    "Update": "type:1:int32 entity:2:Entity",
    # ---- requests
    "WriteRequest": "target:1:TargetDevice client_id:2:uint32 updates:3:*Update atomicity:4:int32 "
    "p4_name:5:string",
    "WriteResponse": "status:1:*Error",
    "ReadRequest": "target:1:TargetDevice client_id:2:uint32 entities:3:*Entity p4_name:4:string",
    "ReadResponse": "entities:1:*Entity status:2:*Error",
    "ForwardingPipelineConfig": "p4_name:1:string bfruntime_info:2:bytes",
    "NonP4Config": "bfruntime_info:1:bytes",
    "SetForwardingPipelineConfigRequest": "device_id:1:uint32 client_id:2:uint32 action:3:int32 "
    "config:6:*ForwardingPipelineConfig",
    "SetForwardingPipelineConfigResponse": "set_forwarding_pipeline_config_response_type:1:int32",
    "GetForwardingPipelineConfigRequest": "device_id:1:uint32 client_id:2:uint32",
    "GetForwardingPipelineConfigResponse": "config:1:*ForwardingPipelineConfig non_p4_config:2:NonP4Config",
    # ---- the stream of a client
    "Subscribe": "device_id:2:uint32 status:4:Status",
    "StreamMessageRequest": "client_id:1:uint32 subscribe:2:Subscribe:update",
    "StreamMessageResponse": "subscribe:1:Subscribe:update",
}

UNSPECIFIED, INSERT, MODIFY, MODIFY_INC, DELETE, INSERT_OR_MODIFY, RESET = range(7)
"""Kinds of updates."""
CONTINUE_ON_ERROR, ROLLBACK_ON_ERROR, DATAPLANE_ATOMIC = range(3)
"""Ways to handle a batch of updates in which one fails."""
BIND = 0
"""The only action of SetForwardingPipelineConfig that needs no output of the chip's compiler."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="bfruntime.proto", package="bfrt_proto", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        oneofs: dict[str, int] = {}
        for text in fields.split():
            _add_field(message, oneofs, *text.split(":"))
    return file


def _add_field(
    message: Any, oneofs: dict[str, int], name: str, number: str, kind: str, oneof: str = ""
) -> None:
    field = message.field.add(name=name, number=int(number))
    repeated, kind = kind.startswith("*"), kind.lstrip("*")
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if kind in _MESSAGES:
        field.type, field.type_name = field.TYPE_MESSAGE, f".bfrt_proto.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    if oneof:
        if oneof not in oneofs:
            oneofs[oneof] = len(oneofs)
            message.oneof_decl.add(name=oneof)
        field.oneof_index = oneofs[oneof]


_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_file().SerializeToString())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"bfrt_proto.{name}"))


Error = _message("Error")
Entity, TableEntry, TableData, TableKey = (
    _message(name) for name in ("Entity", "TableEntry", "TableData", "TableKey")
)
KeyField, DataField = _message("KeyField"), _message("DataField")
WriteRequest, WriteResponse = _message("WriteRequest"), _message("WriteResponse")
ReadRequest, ReadResponse = _message("ReadRequest"), _message("ReadResponse")
SetConfigRequest = _message("SetForwardingPipelineConfigRequest")
SetConfigResponse = _message("SetForwardingPipelineConfigResponse")
GetConfigRequest = _message("GetForwardingPipelineConfigRequest")
GetConfigResponse = _message("GetForwardingPipelineConfigResponse")
StreamMessageRequest = _message("StreamMessageRequest")
StreamMessageResponse = _message("StreamMessageResponse")
