"""The P4Runtime messages: the one door through which generated protobuf code enters this project.

They are beside the programs because switch and controller speak them to each other about these: P4Info is
what a compiled program tells a controller, and all other messages refer to it.

The ``p4runtime`` distribution ships code that protoc generated before version 3.19, which the C
implementation of protobuf 4 and newer refuses to run. `_legacy` builds the same modules from
the descriptors in that code, the way that current generated code does; where the shipped code runs
as it is, nothing is touched. Either way the modules appear under their own names, so that
third-party P4Runtime clients work in the same process.
"""

from p4src.messages import _legacy

# The imports below work only after this.
_legacy.make_importable()

from google.rpc import code_pb2, status_pb2  # noqa: E402
from p4.config.v1 import p4info_pb2, p4types_pb2  # noqa: E402
from p4.v1 import p4data_pb2, p4runtime_pb2, p4runtime_pb2_grpc  # noqa: E402

__all__ = [
    "code_pb2",
    "p4data_pb2",
    "p4info_pb2",
    "p4runtime_pb2",
    "p4runtime_pb2_grpc",
    "p4types_pb2",
    "status_pb2",
]
