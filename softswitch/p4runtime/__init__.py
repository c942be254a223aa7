"""P4Runtime for the embedded switch.

======================  =============================================================
`server`                gRPC: takes requests apart, maps errors to status codes
`state`                 the loaded program and all that was written to it, as one bundle
`entities`              one update or read of anything; `tables`, `cells`, `replication`
`translate`             P4Runtime messages to and from the entries of pipelines; packets' metadata
`schema`                a P4Info by ids and names
`roles`                 who is the primary controller, and what a role may do
`written`               what controllers write to tables, for a log and for the next program
======================  =============================================================

`docs/p4runtime.md` says which requirement of the specification which test holds.
"""

from collections.abc import Callable

from softswitch import gnmi
from softswitch.compiler import Choice
from softswitch.engine.switch import Switch
from softswitch.engine.trace import Trace
from softswitch.p4runtime.server import Service, Tls, private_socket
from softswitch.p4runtime.state import Backend, Device
from softswitch.p4runtime.written import Journal, carry_over

__all__ = ["Service", "Tls", "private_socket", "serve"]


def serve(
    switch: Switch,
    *,
    address: str = "127.0.0.1:0",
    device_id: int = 0,
    tls: Tls | None = None,
    source: str | None = None,
    backend: Backend = "auto",
    undefined: Choice | None = None,
    trace: Trace | None = None,
    architecture: str | None = None,
    tell: Journal | None = None,
    fill: Callable[[Device], None] = lambda device: None,
) -> Service:
    """Offer P4Runtime for a switch, and gNMI at the same address, to read its ports and whether it changed.

    Programs loaded by `Switch.load` are unknown to P4Runtime. `close` the service before the switch.

    Args:
        switch: The switch.
        address: ``host:port``, where port 0 takes a free one, or ``unix:path``.
        device_id: The device id.
        tls: Files for TLS; None: no encryption.
        source: A preprocessed P4 program, which is loaded at once.
        backend: How programs run; see `softswitch.load`.
        undefined: The choice for undefined values in all programs.
        trace: Gets all steps of packets, from the interpreter.
        architecture: The only one whose programs are taken (v1model, tna or t2na); None: any.
        tell: Gets what controllers load and write to tables.
        fill: Called when the program is loaded, before any controller is heard.

    Raises CompileError or PipelineError if the program cannot be loaded, OSError if the address
    is not available.
    """
    device = Device(
        switch,
        backend=backend,
        undefined=undefined,
        trace=trace,
        architecture=architecture,
        carry_over=carry_over,
    )
    if source is not None:
        device.preload(source)
    fill(device)
    others = [gnmi.handlers(switch, lambda: device.writes)]
    service = Service(device, device_id=device_id, address=address, tls=tls, tell=tell, others=others)
    switch.on_packet_in(lambda _, frame: service.packet_in(frame))
    return service
