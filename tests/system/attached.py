"""A switch that outlives the runs that attach to it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from controller.runtime.switch_process import EmbeddedSwitch

PORTS = range(1, 7)


@dataclass(frozen=True)
class Attached:
    """A switch with six ports, and the options of ``ina run`` that lead to it."""

    switch: EmbeddedSwitch
    options: tuple[str, ...]

    @property
    def address(self) -> str:
        """Where its P4Runtime listens."""
        return self.switch.address


@contextmanager
def open_switch(*options: object, p4runtime: str = "127.0.0.1:0", peers: bool = True) -> Iterator[Attached]:
    """Start ``ina switch`` with these options besides its ports, which know their peers or learn them."""
    base = consecutive_udp_ports(2 * len(PORTS)) - PORTS[0]
    workers = base + len(PORTS)
    specs = [f"{port}=udp:{base + port}" + f":{workers + port}" * peers for port in PORTS]
    ports = [word for spec in specs for word in ("--port", spec)]
    with EmbeddedSwitch([*ports, *map(str, options)], p4runtime=p4runtime) as switch:
        address = switch.address if switch.address.startswith("unix:") else f"grpc://{switch.address}"
        bases = ("--udp-base", f"127.0.0.1:{base}", "--worker-base", f"127.0.0.1:{workers}")
        yield Attached(switch, ("--switch", address, *bases))


def consecutive_udp_ports(count: int) -> int:
    """Return the first of `count` free UDP ports in a row."""
    while True:
        with ExitStack() as stack:
            probes = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(count)]
            probes[0].bind(("127.0.0.1", 0))
            first: int = probes[0].getsockname()[1]
            try:
                for offset in range(1, count):
                    probes[offset].bind(("127.0.0.1", first + offset))
            except (OSError, OverflowError):
                continue
        return first
