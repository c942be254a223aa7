"""Make the ``p4runtime`` distribution's outdated generated modules importable."""

import ast
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

# In the order of their dependencies.
_MODULES = (
    "p4.config.v1.p4types_pb2",
    "p4.config.v1.p4info_pb2",
    "p4.v1.p4data_pb2",
    "p4.v1.p4runtime_pb2",
)

# The pool must already have the descriptors' dependencies.
_NEEDED = ("google.protobuf.any_pb2", "google.rpc.status_pb2")

_SERIALIZED = re.compile(r"serialized_pb=(b'[^'\\]*(?:\\.[^'\\]*)*'|b\"[^\"\\]*(?:\\.[^\"\\]*)*\")")


def make_importable() -> None:
    """Put every P4Runtime module into `sys.modules`, rebuilt if its own code does not run.

    Raises ImportError if ``p4runtime`` is not installed or has an unknown form.
    """
    for name in _NEEDED:
        importlib.import_module(name)
    for name in _MODULES:
        try:
            importlib.import_module(name)
        except TypeError:  # "Descriptors cannot be created directly"
            _rebuild(name)


def _rebuild(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ImportError(f"{name} has no source file to read descriptors from")
    match = _SERIALIZED.search(Path(spec.origin).read_text(encoding="utf-8"))
    if match is None:
        raise ImportError(f"{spec.origin} holds no serialized descriptor")
    descriptor = descriptor_pool.Default().AddSerializedFile(ast.literal_eval(match.group(1)))

    module = ModuleType(name)
    module.__file__ = spec.origin
    module.__dict__["DESCRIPTOR"] = descriptor
    builder.BuildMessageAndEnumDescriptors(descriptor, module.__dict__)
    builder.BuildTopDescriptorsAndMessages(descriptor, name, module.__dict__)
    sys.modules[name] = module
    package, _, leaf = name.rpartition(".")
    setattr(sys.modules[package], leaf, module)
