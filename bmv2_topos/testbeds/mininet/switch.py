"""The embedded switch in anybody's own Mininet.

::

    from bmv2_topos.testbeds.mininet import EmbeddedSwitch
    from mininet.net import Mininet
    from mininet.topo import SingleSwitchTopo

    net = Mininet(SingleSwitchTopo(4), switch=EmbeddedSwitch, controller=None)
    net.start()
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bmv2_topos.testbeds.mininet.package import find
from bmv2_topos.testbeds.netns import StepFailed
from controller import Controller, forwarding

find()

from mininet.node import Switch  # noqa: E402 - only now it is found

FLOOD_GROUP = 1


class EmbeddedSwitch(Switch):  # type: ignore[misc]
    """A switch of Mininet that is an ``ina switch``; its ports are Mininet's, port n is ``NAME-ethN``."""

    def __init__(
        self,
        name: str,
        *,
        program: str = "exclusive",
        lanes: int = 256,
        flood: bool = True,
        options: Sequence[str] = (),
        socket: Path | None = None,
        **parameters: Any,
    ) -> None:
        """Prepare it; `start` starts it.

        Args:
            name: as of Mininet.
            program: a program of p4src, or the path of one that ends in .p4.
            lanes: values per packet, which the program is built for.
            flood: send frames for MACs without a row to all ports, which a network without loops can do.
            options: more options of ``ina switch``, such as ``--impair 1:loss=1%``.
            socket: where P4Runtime listens; None: in a folder that only this user can enter.
            parameters: as of Mininet's Switch.
        """
        super().__init__(name, **parameters)
        self._program = ["--program", program, "--lanes", str(lanes)]
        self._flood = flood
        self._options = options
        self._own = Path(tempfile.mkdtemp(prefix="ina-")) if socket is None else None
        self._socket = socket or Path(str(self._own)) / "p4runtime"
        self.process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        """Address of its P4Runtime, from every namespace."""
        return f"unix:{self._socket}"

    def connect(self) -> Controller:
        """Return its controller, to be closed by the caller. Raises ControllerError."""
        return Controller.connect(self.address)

    def start(self, controllers: object) -> None:
        """Start it. Raises StepFailed with what it said."""
        numbers = {number: str(interface) for number, interface in self.intfs.items() if number}
        ports = [f"--port={number}=veth:{interface}" for number, interface in numbers.items()]
        python = [sys.executable, "-P", "-m", "controller.cli", "switch"]
        where = ["--p4runtime", self.address]
        for interface in numbers.values():
            self.cmd(f"ip link set {interface} up")
        self.process = self.popen(
            [*python, *self._program, *where, *ports, *self._options],
            stdin=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        try:
            json.loads(self.process.stdout.readline())
        except ValueError:
            said = self.process.communicate()[1].strip() or "it said nothing"
            raise StepFailed(f"switch {self.name} did not start: {said}") from None
        if self._flood:
            with self.connect() as controller:
                controller.install(
                    [
                        forwarding.flood_group(FLOOD_GROUP, list(numbers)),
                        forwarding.broadcast(FLOOD_GROUP),
                        forwarding.flood_unknown(FLOOD_GROUP),
                    ]
                )

    def stop(self, deleteIntfs: bool = True) -> None:
        """Stop it."""
        if self.process is not None:
            self.process.terminate()
            self.process.communicate()
            self.process = None
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
        super().stop(deleteIntfs)
