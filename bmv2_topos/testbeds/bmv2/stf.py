"""STF scripts on BMv2: the same statements and the same checks as on the embedded switch."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bmv2_topos.testbeds.bmv2.files import FileSwitch, ToolFailed
from bmv2_topos.testbeds.bmv2.plane import P4RuntimePlane
from bmv2_topos.testbeds.netns.bmv2 import SWITCH, help_text, missing
from bmv2_topos.testbeds.netns.errors import MissingRequirement
from controller.errors import ControllerError, ProgramMismatch
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.switches.programs import p4c_command, p4c_output
from softswitch.compiler import ir
from softswitch.stf import Control, PacketLine, ScriptReport, Statement, play, ports_of


def run_on_bmv2(
    source: Path,
    program: ir.Program,
    statements: Sequence[Statement],
    *,
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[Path] = (),
) -> ScriptReport:
    """Compile a program with p4c and run a script on its own ``simple_switch_grpc``.

    Packets that the switch sends to ports that the script does not name (`ports_of`) are lost.

    Args:
        source: The program's file.
        program: The same program as read by our compiler, to resolve the names in the script.
        statements: The script.
        defines: Preprocessor definitions.
        include_dirs: More directories to search for included files.

    Raises MissingRequirement without the tools; ProgramMismatch if p4c or BMv2 refuses the program; and
    ScriptError if the script does not fit the program or uses something that BMv2 does not support.
    """
    if lacking := missing():
        raise MissingRequirement(f"scripts on BMv2 need {lacking}; the embedded switch needs neither")
    with tempfile.TemporaryDirectory(prefix="ina-stf-") as name:
        folder = Path(name)
        command = p4c_command(source, defines or {}, folder, include_dirs=include_dirs)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProgramMismatch(f"p4c refuses {source}: {done.stderr.strip()}")
        bundle = p4c_output(source, folder)
        socket = folder / "p4runtime"
        arrivals = [(each.port, each.data) for each in statements if isinstance(each, PacketLine)]
        ports = ports_of(statements)
        switch = FileSwitch(folder, ports=ports, inputs=sorted({port for port, _ in arrivals}))
        try:
            before, after = switch_command(socket, help_text())
            switch.start([*network_of_its_own(), *before], after, socket.exists)
            try:
                client = P4RuntimeClient(f"unix:{socket}", timeout_s=60)
                try:
                    with client.mastership():
                        client.load(bundle.p4info, bundle.device_config)
                        plane = P4RuntimePlane(client, program, bundle)
                        return play(statements, _Bmv2(switch, Control(program, plane, plane), arrivals))
                finally:
                    client.close()
            finally:
                switch.stop()
        except ToolFailed as error:
            raise ControllerError(str(error)) from error


def network_of_its_own() -> list[str]:
    """Return the words to put before a command so that it runs without any network.

    Return no words if this user may not make a network namespace.

    The switch's Thrift server listens at all addresses of the machine, and any client controls the switch.
    The switch needs no network: packets go through files, and P4Runtime through a Unix socket.
    """
    for options in (("--net",), ("--user", "--map-root-user", "--net")):
        prefix = ["unshare", *options, "--"]
        with contextlib.suppress(OSError):
            if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
                return prefix
    return []


def switch_command(socket: Path, known: str) -> tuple[list[str], list[str]]:
    """Return two parts of a switch's command line: the part before the ports, and the part after the ports.

    With these arguments the switch listens at no address that another switch uses.

    `known` is the help text of the switch's build; only options that it mentions are used. With Thrift port 0
    the kernel chooses a free port, instead of 9090 for every switch. Notifications go through a file beside
    `socket`.
    """
    own = []
    if "--thrift-port" in known:
        own += ["--thrift-port", "0"]
    if "--notifications-addr" in known:
        own += ["--notifications-addr", f"ipc://{socket}.notifications"]
    before = [SWITCH, "--no-p4", "--use-files", "0", "-L", "off", *own]
    return before, ["--", "--grpc-server-addr", f"unix:{socket}"]


class _Bmv2:
    """BMv2 as a `softswitch.stf.run.Target`; all `arrivals` of the script are known at the start.

    The switch reads a packet once each other open input holds a later packet. So one input stays empty: the
    input whose packet the switch has read last. Each other input holds its next packet, or is closed if the
    script has no further packet for it. When the empty input is filled or closed, the switch reads exactly
    one packet, the next packet of the script.
    """

    def __init__(self, switch: FileSwitch, control: Control, arrivals: Sequence[tuple[int, bytes]]) -> None:
        self.control = control
        self._switch = switch
        self._coming = {
            port: [(number, frame) for number, (at, frame) in enumerate(arrivals, start=1) if at == port]
            for port in switch.inputs
        }
        self._empty = set(switch.inputs)

    def send(self, port: int, data: bytes) -> None:
        for each in self._empty:
            if self._coming[each]:
                number, frame = self._coming[each].pop(0)
                self._switch.write_at(number, each, frame)
            else:
                self._switch.close_input(each)
        self._empty = {port}
        self._switch.settle()

    def left(self) -> Mapping[int, Sequence[bytes]]:
        return self._switch.sent()
