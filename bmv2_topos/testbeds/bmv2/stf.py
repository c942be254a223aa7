"""STF scripts on BMv2: the same statements and the same judgement as on the embedded switch."""

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

    Packets that leave at ports outside `ports_of` are lost.

    Args:
        source: The program's file.
        program: The same program from our compiler, for the names in the script.
        statements: The script.
        defines: Preprocessor definitions.
        include_dirs: Further directories of included files.

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
                        return play(statements, _Bmv2(switch, Control(program, plane), arrivals))
                finally:
                    client.close()
            finally:
                switch.stop()
        except ToolFailed as error:
            raise ControllerError(str(error)) from error


def network_of_its_own() -> list[str]:
    """Return the beginning of a command that runs without any network; empty where that is not allowed.

    Thrift listens at all addresses of the machine, and each client that reaches it controls the switch. The
    switch itself needs none: packets come through files, P4Runtime through a Unix socket.
    """
    for options in (("--net",), ("--user", "--map-root-user", "--net")):
        prefix = ["unshare", *options, "--"]
        with contextlib.suppress(OSError):
            if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
                return prefix
    return []


def switch_command(socket: Path, known: str) -> tuple[list[str], list[str]]:
    """Return the arguments before and after the ports of a switch, with addresses of its own.

    `known` is the help of its build. Thrift has no option for its address: port 0 has the kernel choose one
    that is free, where 9090 would be everybody's. Notifications go through a file beside `socket`.
    """
    own = []
    if "--thrift-port" in known:
        own += ["--thrift-port", "0"]
    if "--notifications-addr" in known:
        own += ["--notifications-addr", f"ipc://{socket}.notifications"]
    before = [SWITCH, "--no-p4", "--use-files", "0", "-L", "off", *own]
    return before, ["--", "--grpc-server-addr", f"unix:{socket}"]


class _Bmv2:
    """A `softswitch.stf.run.Target`. All `arrivals` are known from the beginning.

    The switch lets a packet in once all other inputs have a later one. So every input has its next packet
    waiting, or is closed if it has none, but for the one that the last packet came by: filling that lets in
    exactly the next packet of all.
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
