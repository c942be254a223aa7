"""Where the workers of jobs run, and how they reach their switch.

Everything that starts workers uses `Hosts`, whether the switches run in this process or in another one. This
module admits no jobs to switches.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from controller import Member
from hostlib.launch.launcher import Output, Rendezvous, RunningWorkers, Workers, parse_address
from ina.launch.addresses import HostAddresses, server_address
from ina.launch.spec import LaunchSpec

T = TypeVar("T")


class PortSwitch(Protocol):
    """A running switch with ports to hosts of this machine."""

    def udp_address(self, port: int) -> str:
        """Return the address to which a port's UDP socket is bound."""

    def shm_path(self, port: int) -> str | None:
        """Return the path of a port's Unix socket, if the port uses shared memory; None: it does not."""


class Hosts(ABC):
    """The hosts on which workers run.

    The methods of this class are for workers on this machine. Subclasses override them for other hosts.
    """

    @property
    def group_host(self) -> str | None:
        """Address of this machine at which its `TurnServer` listens for workers on other machines.

        None: all workers run on this machine.
        """
        return None

    @abstractmethod
    def transport(self, switch: str, member: Member) -> Mapping[str, Any]:
        """Return the fields of a worker's `hostlib.TransportConfig`, for packets to and from `switch`.

        Raises AddressTaken.
        """

    def inside(self, member: Member, call: Callable[[str], T]) -> T:
        """Return the result of `call`, called with the IP address of a worker's host.

        If the host is a network namespace, `call` runs inside it.
        """
        return call("127.0.0.1")

    @contextlib.contextmanager
    def torch_store(self, member: Member) -> Iterator[tuple[str, int]]:
        """Reserve a TCP address on a worker's host for the store of ``torch.distributed``, and yield it."""
        with self.inside(member, server_address) as held:
            yield held.getsockname()

    def machine(self, member: Member) -> str | None:
        """Return the name of a worker's machine; None: this machine."""
        return None

    def environment(self, member: Member) -> Mapping[str, str]:
        """Return the environment variables from which a worker's command learns its host."""
        return {}

    def command(self, command: Sequence[str]) -> Sequence[str]:
        """Return the command that runs `command` on the host named by the variables of `environment`.

        Raises LaunchError.
        """
        return command

    def start_workers(
        self,
        spec: LaunchSpec,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        rendezvous: Rendezvous,
        on_output: Output,
    ) -> RunningWorkers:
        """Start the workers of a job.

        Args:
            spec: The job.
            command: The command of each worker, as the method `command` returns it.
            environments: Variables of each worker; the position is the rank.
            rendezvous: Notified of workers that have ended.
            on_output: Called with the workers' output.

        Raises LaunchError.
        """
        return Workers(command, environments, rendezvous, on_output, spec.inherited)

    @property
    def lost(self) -> Mapping[str, str]:
        """By name of each lost machine, why it is lost; the workers of lost machines count as failed."""
        return {}

    def strangers(self) -> int:
        """Return the number of packets that hosts received from senders other than the switch.

        Call it regularly, see `HostAddresses.strangers`.
        """
        return 0


class PortHosts(Hosts):
    """Hosts on this machine, each connected to a port of a switch process on this machine.

    Packets pass through shared memory, or through UDP on loopback.
    """

    def __init__(self, switches: Mapping[str, PortSwitch], addresses: HostAddresses) -> None:
        self._switches = switches
        self.addresses = addresses

    def transport(self, switch: str, member: Member) -> Mapping[str, Any]:
        """Return the fields of a worker's `hostlib.TransportConfig`. Raises AddressTaken."""
        assert member.port is not None
        path = self._switches[switch].shm_path(member.port)
        link: dict[str, Any] = {"kind": "shm", "local": "", "switch": path}
        if path is None:
            local, there = self.ends(switch, member.port)
            link = {"kind": "loopback", "local": local, "held": True, "switch": there}
        return {**link, "src_mac": member.mac, "src_ip": member.ip, "udp_port": member.udp_port}

    def strangers(self) -> int:
        """Return the number of packets that hosts received from senders other than the switch."""
        return self.addresses.strangers()

    def ends(self, switch: str, port: int) -> tuple[str, str]:
        """Reserve the UDP address of the host at a switch port; return the host's and the port's address.

        Raises AddressTaken.
        """
        there = self._switches[switch].udp_address(port)
        host, number = self.addresses.hold(switch, port, parse_address(there))
        return f"{host}:{number}", there


class UdpHosts(Hosts):
    """Hosts with IP addresses of their own. All of them send UDP packets to the same switch address."""

    def __init__(self, switch_address: str) -> None:
        self._switch_address = switch_address

    def transport(self, switch: str, member: Member) -> Mapping[str, Any]:
        """Return the fields of a worker's `hostlib.TransportConfig`."""
        return {"kind": "udp", "local": f"{member.ip}:{member.udp_port}", "switch": self._switch_address}
