"""Run a switch as a process: ports, a program and a P4Runtime service, until it must stop.

With `until_eof` the parent process may send requests, lines of JSON, to its standard input:

==========================  ====================================================================
``{"statistics": true}``    answer ``{"statistics": {port number: `PortStatistics`}}``
``{"port": "9=shm"}``       open one more port, specified as for ``--port``, with ``"impair"`` as for
                            ``--impair``; answer ``{"udp_ports": …, "shm_ports": …}`` for all ports
anything else               answer ``{"error": reason}``; the switch continues
==========================  ====================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Self, TextIO

from softswitch.compiler import Choice, CompileError
from softswitch.engine.cache import preprocess_once
from softswitch.engine.capture_files import CaptureFiles, CaptureTo
from softswitch.engine.native import Members
from softswitch.engine.pipeline import PipelineError
from softswitch.engine.ports import PortImpairments, PortSpec, SharedPort, SwitchError, UdpPort, parse_port
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Loading, Service, Serving, Tls, private_socket, replication, serve
from softswitch.p4runtime.entities import Journal
from softswitch.p4runtime.errors import RequestError
from softswitch.p4runtime.state import Backend, Bundle, Device

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_SET_BYTE: Final = 0
"""The byte that `StopSignal.set` writes in place of a signal's number."""


class StopSignal:
    """An event that is set by SIGTERM, SIGINT, or any thread. Use it in a ``with`` block of the main thread.

    A signal writes into a socket on arrival (`signal.set_wakeup_fd`), on which the main thread waits.
    With a `threading.Event`, a signal that arrived just before the wait would never be noticed, and a
    handler that sets the event would wait for a lock that the interrupted thread may hold.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)  # if the socket is full, the event is set already

    def __enter__(self) -> Self:
        """Take over SIGTERM and SIGINT. Raises ValueError in any thread except the main one."""
        self._woke = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _only_wake) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the signals' earlier handlers, and release all waiting threads."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woke)
        self._event.set()
        self._reader.close()
        self._writer.close()

    def set(self) -> None:
        """Set the event, from any thread; after `__exit__` this has no effect."""
        self._event.set()
        with contextlib.suppress(OSError):
            self._writer.send(bytes((_SET_BYTE,)))

    def wait(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds; return True if the switch must stop.

        Call it in any thread except the main one.
        """
        return self._event.wait(timeout_s)

    def wait_in_main_thread(self) -> None:
        """Wait until the switch must stop; other signals go to their handlers."""
        while self._reader.recv(1)[0] not in (_SET_BYTE, *SIGNALS):
            pass
        self._event.set()


def _only_wake(number: int, frame: object) -> None:
    """Do nothing: the signal only has to wake the reader."""


WATCH_S = 0.5
"""Seconds between checks of a watched program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """Settings of a switch that runs as a process.

    Attributes:
        ports: The ports by number.
        program: File of the P4 program; None: packets are dropped until a controller loads a program.
        defines: Preprocessor definitions of `program`.
        address: Address of P4Runtime, ``host:port`` or ``unix:path``; None: a Unix socket in a private
            folder.
        bfrt: Address of BF Runtime, ``host:port``; None: no BF Runtime.
        device_id: The device id of P4Runtime.
        tls: Files for TLS; None: no encryption.
        impairments: Impairments by port.
        seed: Seed of impairments and of the program's random numbers.
        backend: The back end for programs; see `softswitch.load`.
        undefined: The choice for undefined values in all loaded programs.
        architecture: Accept only programs for this architecture (v1model, tna or t2na); None: any.
        log: Receives a line for each step of a packet; the program is then interpreted.
        metrics_port: Port of loopback with the counters for Prometheus; 0: any port, None: none.
        watch: Load `program` again whenever one of its files has changed, and send a line of JSON with the
            result, or the reason for a failure, to `ready`.
        ready: Receives one line of JSON once everything is open: ``p4runtime`` (its address), ``grpc_port``
            (null for a Unix socket), ``udp_ports`` and ``shm_ports`` (by port number), ``device_id``,
            ``program``, and `greeting`; then, with `until_eof`, the answers to requests.
        greeting: Further fields of the first line to `ready`, such as the version of the caller's protocol.
        until_eof: Stop at the end of standard input.
        capture: Destination of captures; None: no captures.
        journal: Called with each table write and each program load of a controller; None: do not report them.
        runtime: Files with the initial entries of the tables of `program`.
    """

    ports: Mapping[int, PortSpec]
    program: Path | None = None
    defines: Mapping[str, str] | None = None
    address: str | None = "127.0.0.1:0"
    bfrt: str | None = None
    device_id: int = 0
    tls: Tls | None = None
    impairments: Mapping[int, PortImpairments] | None = None
    seed: int = 0
    backend: Backend = "auto"
    undefined: Choice | None = None
    architecture: str | None = None
    log: TextIO | None = None
    metrics_port: int | None = None
    watch: bool = False
    ready: TextIO | None = None
    greeting: Mapping[str, object] = field(default_factory=dict)
    until_eof: bool = False
    capture: CaptureTo | None = None
    journal: Journal | None = None
    runtime: Sequence[Path] = ()


def run_switch(asked: SwitchSettings) -> None:
    """Run a switch until SIGTERM or SIGINT or, with `until_eof`, until standard input ends.

    Call it from the main thread: it handles the two signals.

    Raises CompileError or PipelineError if the program cannot be loaded, RuntimeFileError if `runtime` does
    not fit it, PortError if a port cannot be opened, OSError if a file or `address` is not available,
    SwitchError if the event loop failed.
    """
    source = preprocess_once(asked.program, defines=asked.defines) if asked.program else None
    with contextlib.ExitStack() as stack:
        address = asked.address or stack.enter_context(private_socket())
        switch = stack.enter_context(Switch(asked.ports, seed=asked.seed, impairments=asked.impairments))
        service = serve(
            switch,
            source=source,
            serving=Serving(address=address, device_id=asked.device_id, tls=asked.tls, journal=asked.journal),
            loading=Loading(
                backend=asked.backend,
                undefined=asked.undefined,
                architecture=asked.architecture,
                trace=None if asked.log is None else partial(print, file=asked.log, flush=True),
            ),
            fill=lambda device: _fill(device, asked.runtime),
        )
        try:
            captures = None
            if asked.capture is not None:
                captures = stack.enter_context(CaptureFiles(switch, asked.capture))
            described = {
                "p4runtime": service.address,
                "grpc_port": service.port,
                **_reached_at(switch),
                "device_id": asked.device_id,
                "program": asked.program.stem if asked.program else None,
                **asked.greeting,
            }
            if asked.bfrt is not None:
                # Imported here, because few switches use it.
                from softswitch.bfrt import BfrtService

                name = None if asked.program is None else asked.program.stem
                drivers = BfrtService(service.device, address=asked.bfrt, name=name)
                stack.callback(drivers.close)
                described["bfrt_port"] = drivers.port
            if asked.metrics_port is not None:
                # Imported here, because few switches use it and all would start 20 ms later.
                from softswitch.metrics import render, serve_metrics

                answer = serve_metrics(lambda: render(switch), asked.metrics_port)
                described["metrics_port"] = stack.enter_context(answer)
            switch.start()
            with StopSignal() as stop:
                _say(asked.ready, described)
                if asked.watch and source is not None:
                    watched = (asked, source, service, stop)
                    threading.Thread(target=_watch, args=watched, daemon=True).start()
                if asked.until_eof:
                    answered = (switch, captures, asked.ready, stop)
                    threading.Thread(target=_answer, args=answered, daemon=True).start()
                stop.wait_in_main_thread()
        finally:
            service.close()
        switch.stop()


def _fill(device: Device, files: Sequence[Path]) -> None:
    """Apply files with initial entries to the program's tables. Raises RuntimeFileError, OSError."""
    if not files:
        return
    # Imported here, because few switches have such files.
    from softswitch.stf.control import Control
    from softswitch.stf.runtime import configure

    with device.writing(), device.switch.locked():
        bundle = device.bundle
        for path in files:
            replication = _Replication(device.switch, bundle)
            configure(path, Control(bundle.program, bundle.pipeline, replication))


class _Replication:
    """Sets groups and sessions by P4Runtime, so that controllers can read them."""

    def __init__(self, switch: Switch, bundle: Bundle) -> None:
        self._switch = switch
        self._bundle = bundle

    def set_multicast_group(self, group: int, members: Members) -> None:
        with _refused():
            replication.set_group(self._bundle, self._switch, group, members)

    def set_clone_session(self, session: int, members: Members | None, truncate: int = 0) -> None:
        with _refused():
            replication.set_session(self._bundle, self._switch, session, members, truncate)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except RequestError as error:
        raise PipelineError(str(error)) from error


def _reached_at(switch: Switch) -> dict[str, object]:
    """Return the addresses to which the far ends of ports connect, by the switch's port number.

    ``udp_ports`` has UDP port numbers, ``shm_ports`` the paths of the Unix sockets for shared memory.
    """
    return {
        "udp_ports": {
            str(number): switch.port_address(number)[1]
            for number, port in switch.ports.items()
            if isinstance(port, UdpPort)
        },
        "shm_ports": {
            str(number): switch.shared_path(number)
            for number, port in switch.ports.items()
            if isinstance(port, SharedPort)
        },
    }


def _watch(settings: SwitchSettings, known: str, service: Service, stop: StopSignal) -> None:
    """Reload the program whenever its preprocessed text differs from `known`, until the switch stops."""
    assert settings.program is not None
    complaint = ""
    while not stop.wait(WATCH_S):
        try:
            source = preprocess_once(settings.program, defines=settings.defines)
            if source == known:
                continue
            known = source
            service.device.reload(source)
        except (CompileError, PipelineError, RequestError, OSError) as error:
            if str(error) != complaint:
                _say(settings.ready, {"error": f"the previous program keeps running: {error}"})
            complaint = str(error)
        else:
            complaint = ""
            _say(settings.ready, {"reloaded": settings.program.stem})


def _answer(switch: Switch, captures: CaptureFiles | None, answers: TextIO | None, stop: StopSignal) -> None:
    """Answer requests from standard input until it ends, then stop the switch."""
    try:
        for line in _lines(sys.stdin.fileno()):
            _say(answers, _execute(switch, captures, line))
    finally:  # also if no process reads the answers any more, or if the switch has been closed
        stop.set()


def _execute(switch: Switch, captures: CaptureFiles | None, line: bytes) -> dict[str, object]:
    try:
        command = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"error": f"a command is not JSON: {error}"}
    match command:
        case {"statistics": True}:
            return {"statistics": {str(number): asdict(switch.statistics(number)) for number in switch.ports}}
        case {"port": str(text), **more}:
            return _open_port(switch, captures, text, str(more.get("impair", "")))
    return {"error": 'unknown command; known are {"statistics": true} and {"port": "9=shm"}'}


def _open_port(switch: Switch, captures: CaptureFiles | None, text: str, impair: str) -> dict[str, object]:
    number, equals, spec = text.partition("=")
    if not (equals and number.isascii() and number.isdigit()):
        return {"error": f"port {text!r}: must be NUMBER=KIND, such as 9=shm"}
    try:
        switch.add_port(int(number), parse_port(spec), PortImpairments.parse(impair) if impair else None)
        if captures is not None:
            captures.add(int(number))
    except (SwitchError, ValueError, OSError) as error:
        return {"error": f"port {text}: {error}"}
    return _reached_at(switch)


def _lines(descriptor: int) -> Iterator[bytes]:
    # Not through sys.stdin: a thread waiting in its buffer would block the interpreter's exit.
    rest = b""
    while data := os.read(descriptor, 4096):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def _say(to: TextIO | None, message: object) -> None:
    if to is not None:
        print(json.dumps(message), file=to, flush=True)
