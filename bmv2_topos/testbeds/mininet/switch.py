"""The embedded switch, and BMv2, as switches for a user's own Mininet.

::

    from bmv2_topos.testbeds.mininet import EmbeddedSwitch
    from mininet.net import Mininet
    from mininet.topo import SingleSwitchTopo

    net = Mininet(SingleSwitchTopo(4), switch=EmbeddedSwitch, controller=None)
    net.start()
    net.pingAll()
    net.stop()

For BMv2, write `Bmv2Switch` instead of `EmbeddedSwitch`; it needs ``simple_switch_grpc`` and ``p4c`` on PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bmv2_topos.testbeds.mininet.package import find
from bmv2_topos.testbeds.netns import MissingRequirement, bmv2, namespaces
from bmv2_topos.testbeds.netns.offloads import turn_off
from bmv2_topos.testbeds.netns.serving import await_service
from controller import SwitchSession, connect
from controller.switches import forwarding
from controller.switches.programs import bmv2_bundle
from hostlib.launch import command_line

find()

from mininet.node import Switch  # noqa: E402 - only now it is found

FLOOD_GROUP = 1


class P4Switch(Switch):  # type: ignore[misc]
    """A Mininet switch with P4Runtime; port n is Mininet's interface ``NAME-ethN``."""

    def __init__(
        self,
        name: str,
        *,
        flood: bool = True,
        socket: Path | None = None,
        command: Sequence[str] = (),
        **parameters: Any,
    ) -> None:
        """Prepare the switch; `start` runs it.

        Args:
            name: name of the switch in Mininet.
            flood: whether to flood frames for unknown MACs to all ports; only for networks without loops.
            socket: path of P4Runtime's Unix socket; None: in a new folder that only this user can enter.
            command: command that runs the switch, with its program and P4Runtime at `socket`; empty: run the
                command of `argv`, and call `load`.
            **parameters: parameters of Mininet's Switch.
        """
        super().__init__(name, **parameters)
        self._flood = flood
        self._command = command
        self._own = Path(tempfile.mkdtemp(prefix="ina-")) if socket is None else None
        self._socket = socket or Path(str(self._own)) / "p4runtime"
        self._log = self._socket.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Address of the switch's P4Runtime; it can be reached from every namespace."""
        return f"unix:{self._socket}"

    def connect(self) -> SwitchSession:
        """Return a new session with the switch, to be closed by the caller. Raises ControllerError."""
        return connect(self.address)

    def argv(self, ports: Mapping[int, str]) -> Sequence[str]:
        """Return the command that runs the switch with these interfaces, by port number."""
        raise NotImplementedError

    def load(self) -> None:
        """Load the program into the running switch. By default do nothing: it was started with a program."""

    def start(self, controllers: object) -> None:
        """Start the switch, also again after `stop`, with empty tables except for flooding.

        Do nothing if it already runs. Raises StepFailed, with the switch's output.
        """
        if self.process is not None and self.process.poll() is None:
            return
        if self._own is not None:
            self._own.mkdir(mode=0o700, exist_ok=True)
        ports = {number: str(interface) for number, interface in self.intfs.items() if number}
        for interface in ports.values():
            self.cmd(f"ip link set {interface} up")
        with self._log.open("w") as log:
            self.process = self.popen(
                list(self._command or self.argv(ports)), stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        await_service(self.name, self.process, self._socket, self._log)
        if not self._command:
            self.load()
        if self._flood:
            with self.connect() as controller:
                controller.install(
                    [
                        forwarding.flood_group(FLOOD_GROUP, list(ports)),
                        forwarding.broadcast(FLOOD_GROUP),
                        forwarding.flood_unknown(FLOOD_GROUP),
                    ]
                )

    def dpctl(self, *words: str) -> str:
        """Return a text with the P4Runtime address; dpctl itself needs OpenFlow, which this switch lacks."""
        return f"{self.name} has no OpenFlow; its P4Runtime is at {self.address}\n"

    def stop(self, deleteIntfs: bool = True) -> None:
        """Stop the switch; if its interfaces are deleted, it cannot start again."""
        if self.process is not None:
            self.process.terminate()
            self.process.communicate()
            self.process = None
        if self._own is not None and deleteIntfs:  # else it may start again, at the same address
            shutil.rmtree(self._own, ignore_errors=True)
        super().stop(deleteIntfs)


class EmbeddedSwitch(P4Switch):
    """A Mininet switch that runs ``ina switch``; it ends with the process of Mininet."""

    def __init__(
        self,
        name: str,
        *,
        program: str = "exclusive",
        lanes: int = 256,
        options: Sequence[str] = (),
        **parameters: Any,
    ) -> None:
        """Prepare the switch; `start` runs it.

        Args:
            name: name of the switch in Mininet.
            program: a program of p4src, or the path of a file that ends in .p4.
            lanes: values per packet, which the program is built for.
            options: more options of ``ina switch``, such as ``--impair 1:loss=1%``.
            **parameters: parameters of `P4Switch`.
        """
        super().__init__(name, **parameters)
        self._options = ["--program", program, "--lanes", str(lanes), *options]

    def argv(self, ports: Mapping[int, str]) -> Sequence[str]:
        """Return the command ``ina switch …`` for these ports."""
        attached = [f"--port={number}=veth:{interface}" for number, interface in ports.items()]
        return command_line.ina(
            "switch", "--until-eof", *self._options, "--p4runtime", self.address, *attached
        )


class Bmv2Switch(P4Switch):
    """A Mininet switch that runs ``simple_switch_grpc``; offloads on its links are disabled."""

    def __init__(
        self,
        name: str,
        *,
        program: str = "exclusive",
        lanes: int = 32,
        **parameters: Any,
    ) -> None:
        """Prepare the switch; `start` runs it.

        Args:
            name: name of the switch in Mininet.
            program: a program of p4src.
            lanes: values per packet, which the program is built for.
            **parameters: parameters of `P4Switch`.

        Raises:
            MissingRequirement: a tool is missing; the message says which, and where to get it.
        """
        if lacking := bmv2.missing():
            raise MissingRequirement(f"Bmv2Switch needs {lacking}; EmbeddedSwitch needs neither")
        super().__init__(name, **parameters)
        self._program = program
        self._lanes = lanes

    def argv(self, ports: Mapping[int, str]) -> Sequence[str]:
        """Return the command ``simple_switch_grpc …`` for these ports."""
        return bmv2.switch_argv(ports, self._socket)

    def start(self, controllers: object) -> None:
        """Disable the offloads at both ends of the switch's links, and start the switch."""
        for link in filter(None, (interface.link for interface in self.intfList())):
            for end in (link.intf1, link.intf2):
                namespaces.inside(f"/proc/{end.node.pid}/ns/net", partial(turn_off, end.name))
        super().start(controllers)

    def load(self) -> None:
        """Compile the program and load it."""
        with self.connect() as controller:
            controller.load(bmv2_bundle(self._program, lanes=self._lanes))
