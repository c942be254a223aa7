"""The P4Runtime messages: all generated protobuf code enters this project through this package.

The messages are beside the programs because they describe them: P4Info is the controller's view of a
compiled program, and all other messages refer to it.

The ``p4runtime`` distribution ships code that protoc generated before version 3.19, which the C
implementation of protobuf 4 and newer refuses to run. `_legacy` builds the same modules from
the descriptors in that code, as current generated code does; if the shipped code runs, it is used
unchanged. In both cases the modules have their usual names, so that third-party P4Runtime clients
work in the same process.
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
