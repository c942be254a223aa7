"""A switch process between two hosts: three network namespaces and two veth pairs, for as long as a block.

Host ``a`` is on port 1, host ``b`` on port 2; the switch forwards by MAC address. All kinds of switches are
used in the same way: started without entries, which are then written over P4Runtime.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from bmv2_topos.testbeds.netns import offloads
from bmv2_topos.testbeds.netns.bmv2 import missing, switch_argv
from bmv2_topos.testbeds.netns.commands import Command
from bmv2_topos.testbeds.netns.errors import NotHere
from bmv2_topos.testbeds.netns.namespaces import check_here, existing, inside, remove
from bmv2_topos.testbeds.netns.serving import await_service, start_switch
from bmv2_topos.testbeds.netns.testbed import run_step
from controller import connect
from controller.switches.programs import p4c_command, p4c_output
from controller.switches.target import TableEntry
from hostlib.launch import command_line

Kind = Literal["ina", "bmv2"]

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { }
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action forward(bit<9> port) { sm.egress_spec = port; }
    action drop() { mark_to_drop(sm); }
    table l2 {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1024;
    }
    apply { l2.apply(); }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), Verify(), I(), E(), Compute(), D()) main;
"""

HOSTS = ("a", "b")
INTERFACE = "eth0"
SOURCE, SOCKET = "forwarding.p4", "p4runtime"
END_S = 5.0
_PREFIX = "ina-bench-"
_number = itertools.count()
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Bed:
    """The hosts' namespaces by name, and the switch process between them."""

    namespaces: dict[str, str]
    pid: int

    def cpu_s(self) -> float:
        """Return the processor time that the switch has used, its own and the kernel's for it, in s."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def number(host: str) -> int:
    """Return a host's MAC address as a number."""
    return 0x020000000001 + HOSTS.index(host)


def mac(host: str) -> str:
    """Return a host's MAC address as text."""
    return number(host).to_bytes(6, "big").hex(":")


def ip(host: str) -> str:
    """Return a host's IP address."""
    return f"10.78.0.{1 + HOSTS.index(host)}"


def check(kinds: Sequence[Kind]) -> None:
    """Raise NotHere, with the packages to install, if a bed of one of these switches cannot be made here."""
    check_here()
    if "bmv2" in kinds and (lacking := missing()):
        raise NotHere(f"the baseline bmv2 needs {lacking}; without --baseline only our own switch runs")


@contextlib.contextmanager
def bed(kind: Kind, *, offload: bool) -> Iterator[Bed]:
    """Make the namespaces, start the switch and fill its table; all is removed after the block.

    With `offload` hosts leave segmentation and checksums to their interfaces, so that superframes reach the
    switch; without, only frames of their MTU do.

    Raises LiveError or ControllerError, with nothing left behind.
    """
    _sweep()
    tag = f"{_PREFIX}{os.getpid()}-{next(_number)}"
    names = {node: tag + node for node in (*HOSTS, "s")}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ina-veth-")))
        stack.callback(remove, names.values())
        for name in names.values():
            run_step(Command(("ip", "netns", "add", name)))
        for port, host in enumerate(HOSTS, start=1):
            _link(names, host, port, offload)
        process = start_switch(["ip", "netns", "exec", names["s"], *_argv(kind, folder)], folder / "log")
        stack.callback(_end, process)
        await_service(kind, process, folder / SOCKET, folder / "log")
        _fill(kind, folder)
        yield Bed(names, process.pid)


def _sweep() -> None:
    """Remove the remains of a killed run."""
    for name in existing(_PREFIX):
        if not Path(f"/proc/{name.removeprefix(_PREFIX).partition('-')[0]}").exists():
            remove([name])


def _link(names: dict[str, str], host: str, port: int, offload: bool) -> None:
    ours, theirs = names["s"], names[host]
    (other,) = (each for each in HOSTS if each != host)
    lines = [
        f"link add p{port} netns {ours} type veth peer name {INTERFACE} netns {theirs} address {mac(host)}"
    ]
    run_step(Command(("ip", "-batch", "-"), tuple(lines)))
    up = (f"link set p{port} addrgenmode none", f"link set p{port} up")
    run_step(Command(("ip", "-n", ours, "-batch", "-"), up))
    far = (
        f"link set {INTERFACE} addrgenmode none",
        f"address add {ip(host)}/24 dev {INTERFACE}",
        f"link set {INTERFACE} up",
        f"neighbour replace {ip(other)} lladdr {mac(other)} dev {INTERFACE} nud permanent",
    )
    run_step(Command(("ip", "-n", theirs, "-batch", "-"), far))
    if not offload:
        inside(theirs, partial(offloads.turn_off, INTERFACE))
        inside(ours, partial(offloads.turn_off, f"p{port}"))


def _argv(kind: Kind, folder: Path) -> list[str]:
    """Return the command that runs the switch, its program compiled. Raises StepFailed."""
    source = folder / SOURCE
    source.write_text(PROGRAM)
    if kind == "bmv2":
        run_step(Command(tuple(p4c_command(source, {}, folder))))
        return switch_argv({1: "p1", 2: "p2"}, folder / SOCKET)
    interfaces = ("-i", "1@p1", "-i", "2@p2")
    address = f"unix:{folder / SOCKET}"
    return command_line.ina("switch", "--program", str(source), *interfaces, "--p4runtime", address)


def _fill(kind: Kind, folder: Path) -> None:
    with connect(f"unix:{folder / SOCKET}") as controller:
        if kind == "bmv2":
            controller.load(p4c_output(folder / SOURCE, folder))
        controller.install(
            TableEntry("I.l2", {"hdr.ethernet.dst": number(host)}, "I.forward", {"port": port})
            for port, host in enumerate(HOSTS, start=1)
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
