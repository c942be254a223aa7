"""A switch that outlives the runs that attach to it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ina.run.switches.switch_process import EmbeddedSwitch

PORTS = range(1, 7)
BLOCK = 32
BLOCKS = range(20_000, 27_000, BLOCK)
"""First ports of blocks that are below what the kernel gives to those who ask for any port: one of these
could go to another test before the switch, or a worker, has taken it."""


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
    with udp_block() as base:
        workers = base + len(PORTS)
        ports = [f"--port={port}=udp:{base + port}" + f":{workers + port}" * peers for port in PORTS]
        with EmbeddedSwitch([*ports, *map(str, options)], p4runtime=p4runtime) as switch:
            address = switch.address if switch.address.startswith("unix:") else f"grpc://{switch.address}"
            bases = ("--udp-base", f"127.0.0.1:{base}", "--worker-base", f"127.0.0.1:{workers}")
            yield Attached(switch, ("--switch", address, *bases))


@contextmanager
def udp_block() -> Iterator[int]:
    """Keep a block of UDP ports from other tests, in whichever process: give its first, which is held."""
    first = os.getpid() % len(BLOCKS)
    for base in (*BLOCKS[first:], *BLOCKS[:first]):
        with socket.socket(type=socket.SOCK_DGRAM) as held:
            try:
                held.bind(("127.0.0.1", base))
                _check_free(range(base + 1, base + BLOCK))
            except OSError:
                continue
            yield base
            return
    raise OSError("all blocks of UDP ports are taken")


def _check_free(ports: range) -> None:
    """Raise OSError if somebody has one of these."""
    with ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)).bind(("127.0.0.1", port))
