"""P4Runtime for the embedded switch.

======================  =============================================================
`server`                gRPC: decodes requests, maps errors to status codes
`state`                 the loaded program and everything written to it, as one bundle
`entities`              one update or read of any entity, by `tables`, `cells`, `replication` and
                        `action_profiles`; controllers' table writes, for a log and for the next program
`translate`             P4Runtime messages to and from the entries of pipelines; packets' metadata
`schema`                the objects of a P4Info, by id and by name
`roles`                 the primary controllers, and the permissions of roles
======================  =============================================================

`docs/reference/p4runtime.md` lists the specification's requirements with the tests that hold them.
"""

from collections.abc import Callable

from softswitch import gnmi
from softswitch.engine.switch import Switch
from softswitch.p4runtime.entities import carry_over
from softswitch.p4runtime.server import Service, Serving, Tls, private_socket
from softswitch.p4runtime.state import Device, Loading

__all__ = ["Loading", "Service", "Serving", "Tls", "private_socket", "serve"]


def serve(
    switch: Switch,
    *,
    source: str | None = None,
    serving: Serving | None = None,
    loading: Loading | None = None,
    fill: Callable[[Device], None] = lambda device: None,
) -> Service:
    """Start P4Runtime for a switch and, at the same address, read-only gNMI (see `softswitch.gnmi`).

    Programs loaded by `Switch.load` are unknown to P4Runtime. Close the returned service before the switch.

    Args:
        switch: The switch.
        source: A preprocessed P4 program to load at once.
        serving: The address and options of the service; None: a free port of 127.0.0.1, without TLS.
        loading: Options for loading programs; None: the defaults.
        fill: Called with the device when the program is loaded, before the service accepts controllers.

    Raises CompileError or PipelineError if the program cannot be loaded, OSError if the address
    is not available.
    """
    device = Device(switch, loading, carry_over=carry_over)
    if source is not None:
        device.preload(source)
    fill(device)
    handlers = [gnmi.handlers(switch, lambda: device.writes)]
    service = Service(device, serving or Serving(), handlers)
    switch.on_packet_in(lambda _, frame: service.packet_in(frame))
    return service
