"""The messages of gNMI, built from the descriptors of ``gnmi.proto`` of github.com/openconfig/gnmi (0.10.0).

They are in a protobuf pool of their own, so that a third-party gNMI client works in the same process.
`gnmi.binpb` is the output of ``protoc --include_imports --descriptor_set_out`` for that file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "gnmi.gNMI"

_pool = descriptor_pool.DescriptorPool()
_files = descriptor_pb2.FileDescriptorSet.FromString(Path(__file__).with_name("gnmi.binpb").read_bytes())
for _file in _files.file:
    _pool.AddSerializedFile(_file.SerializeToString())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"gnmi.{name}"))


CapabilityRequest, CapabilityResponse = _message("CapabilityRequest"), _message("CapabilityResponse")
GetRequest, GetResponse = _message("GetRequest"), _message("GetResponse")
SetRequest, SetResponse = _message("SetRequest"), _message("SetResponse")
SubscribeRequest, SubscribeResponse = _message("SubscribeRequest"), _message("SubscribeResponse")
SubscriptionList = _message("SubscriptionList")
Notification, Update, Path_, TypedValue = (
    _message("Notification"),
    _message("Update"),
    _message("Path"),
    _message("TypedValue"),
)
ENCODINGS: dict[str, int] = {
    value.name: value.number for value in _pool.FindEnumTypeByName("gnmi.Encoding").values
}
"""Numbers of gNMI's encodings, by name."""
