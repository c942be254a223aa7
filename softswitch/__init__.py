"""The embedded switch: compiles P4 programs for v1model or Tofino and runs them, with a P4Runtime service.

A switch in a few lines::

    program = compile_file("p4src/exclusive.p4", defines={"LANES": "32"})
    with Switch({0: parse_port("udp:0"), 1: parse_port("udp:0")}) as switch:
        switch.load(load(program))
        switch.start()
        ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from softswitch.compiler import (
        Choice,
        CompileError,
        Position,
        compile_file,
        compile_source,
        find_undefined,
        p4info,
        p4info_text,
        preprocess_file,
    )
    from softswitch.compiler.undefined import Finding
    from softswitch.daemon import SwitchSettings, run_switch
    from softswitch.engine.build import build_c, join_c, load
    from softswitch.engine.c_compiler import has_compiler
    from softswitch.engine.cache import compile_once, p4info_once, preprocess_once
    from softswitch.engine.capture_files import CaptureFiles, CaptureTo
    from softswitch.engine.emit_c import emit_c
    from softswitch.engine.explain import Explanation, explain
    from softswitch.engine.pcapng import CaptureSettings, file_header, packet_block
    from softswitch.engine.pipeline import PipelineError
    from softswitch.engine.ports import (
        MAX_PORT,
        Impairments,
        PortImpairments,
        PortSpec,
        SwitchError,
        parse_port,
        takes_any_peer,
    )
    from softswitch.engine.switch import Switch
    from softswitch.metrics import MetricsUnknown, metric_family, metric_labels, serve_metrics
    from softswitch.p4runtime import Service, Tls, serve
    from softswitch.p4runtime.entities import Written

__all__ = [
    "MAX_PORT",
    "CaptureFiles",
    "CaptureSettings",
    "CaptureTo",
    "Choice",
    "CompileError",
    "Explanation",
    "Finding",
    "Impairments",
    "MetricsUnknown",
    "PipelineError",
    "PortImpairments",
    "PortSpec",
    "Position",
    "Service",
    "Switch",
    "SwitchError",
    "SwitchSettings",
    "Tls",
    "Written",
    "build_c",
    "compile_file",
    "compile_once",
    "compile_source",
    "emit_c",
    "explain",
    "file_header",
    "find_undefined",
    "has_compiler",
    "join_c",
    "load",
    "metric_family",
    "metric_labels",
    "p4info",
    "p4info_once",
    "p4info_text",
    "packet_block",
    "parse_port",
    "preprocess_file",
    "preprocess_once",
    "run_switch",
    "serve",
    "serve_metrics",
    "takes_any_peer",
]

_HOMES: Final = {
    "compiler": (
        "Choice",
        "CompileError",
        "Position",
        "compile_file",
        "compile_source",
        "find_undefined",
        "p4info",
        "p4info_text",
        "preprocess_file",
    ),
    "compiler.undefined": ("Finding",),
    "daemon": ("SwitchSettings", "run_switch"),
    "engine.build": ("build_c", "join_c", "load"),
    "engine.c_compiler": ("has_compiler",),
    "engine.capture_files": ("CaptureFiles", "CaptureTo"),
    "engine.emit_c": ("emit_c",),
    "engine.explain": ("Explanation", "explain"),
    "engine.pcapng": ("CaptureSettings", "file_header", "packet_block"),
    "engine.pipeline": ("PipelineError",),
    "engine.ports": (
        "Impairments",
        "MAX_PORT",
        "PortImpairments",
        "PortSpec",
        "SwitchError",
        "parse_port",
        "takes_any_peer",
    ),
    "engine.cache": ("compile_once", "p4info_once", "preprocess_once"),
    "engine.switch": ("Switch",),
    "metrics": ("MetricsUnknown", "metric_family", "metric_labels", "serve_metrics"),
    "p4runtime": ("Service", "Tls", "serve"),
    "p4runtime.entities": ("Written",),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: few processes need all of compiler, engine and service."""
    for module, names in _HOMES.items():
        if name in names:
            found: object = getattr(importlib.import_module(f"softswitch.{module}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
