"""Starts the embedded switch as a process of its own and stops it again."""

from __future__ import annotations

from collections.abc import Sequence

from controller.cli.child import Child


class EmbeddedSwitch(Child):
    """A running ``ina switch``; a context manager that stops it."""

    def __init__(self, options: Sequence[str], *, title: str = "the switch process") -> None:
        """Start it with these options."""
        super().__init__("switch", title, ["--until-eof", *options])

    @property
    def address(self) -> str:
        """Where its P4Runtime service listens, once it does. Raises Failure."""
        return f"127.0.0.1:{self.ready()['grpc_port']}"

    def udp_address(self, port: int) -> str:
        """Return where a port's UDP socket is bound, once it is. Raises Failure."""
        return f"127.0.0.1:{self.ready()['udp_ports'][str(port)]}"
