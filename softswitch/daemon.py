"""A switch as a process: ports, a program, a P4Runtime service, until it is told to stop."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Literal, TextIO

from softswitch.compiler import preprocess_file
from softswitch.engine.impairments import PortImpairments
from softswitch.engine.ports import PortSpec, UdpPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, Tls, serve
from softswitch.p4runtime.state import Backend


def run_switch(
    ports: Mapping[int, PortSpec],
    *,
    program: Path | None = None,
    defines: Mapping[str, str] | None = None,
    address: str = "127.0.0.1:0",
    device_id: int = 0,
    tls: Tls | None = None,
    impairments: Mapping[int, PortImpairments] | None = None,
    seed: int = 0,
    backend: Backend = "auto",
    ready: TextIO | None = None,
    until_eof: bool = False,
) -> None:
    """Run a switch until SIGTERM or SIGINT or, with `until_eof`, until standard input ends.

    Without a `program`, packets are dropped until a controller loads one. Once everything is open,
    `ready` gets one line of JSON: ``grpc_port``, ``udp_ports`` (by port number), ``device_id`` and
    ``program``. To be called from the main thread: it handles the two signals.

    Raises CompileError or PipelineError if the program cannot be loaded, PortError if a port cannot
    be opened, OSError if a file or `address` cannot be had, SwitchError if the event loop failed.
    """
    source = preprocess_file(program, defines=defines) if program else None
    stop = threading.Event()
    engine: Literal["auto", "python"] = "python" if backend == "interpreter" else "auto"
    with Switch(ports, seed=seed, impairments=impairments, engine=engine) as switch:
        service = serve(switch, address=address, device_id=device_id, tls=tls, source=source, backend=backend)
        try:
            switch.start()
            with _Signals(stop):
                if until_eof:
                    threading.Thread(target=_wait_for_eof, args=(stop,), daemon=True).start()
                if ready is not None:
                    line = json.dumps(_description(switch, service, device_id, program))
                    print(line, file=ready, flush=True)
                stop.wait()
        finally:
            service.close()
        switch.stop()


def _description(switch: Switch, service: Service, device_id: int, program: Path | None) -> dict[str, object]:
    return {
        "grpc_port": service.port,
        "udp_ports": {
            str(number): switch.port_address(number)[1]
            for number, port in switch.ports.items()
            if isinstance(port, UdpPort)
        },
        "device_id": device_id,
        "program": program.stem if program else None,
    }


class _Signals:
    """Sets an event on SIGTERM and SIGINT; afterwards the signals do what they did before."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        self._before = {
            number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)
        }

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()


def _wait_for_eof(stop: threading.Event) -> None:
    # Not through sys.stdin: a thread that waits in its buffer would block the interpreter's exit.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    stop.set()
