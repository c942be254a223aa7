"""Where the workers of jobs run, and how they reach their switch.

Everything that starts workers uses `Hosts`, whether the switches run in this process or in another one. This
module admits no jobs to switches.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from controller import Member
from hostlib import TransportConfig
from hostlib.launch.launcher import (
    HeldAddress,
    Output,
    OwnSocket,
    Rendezvous,
    RunningWorkers,
    Workers,
    parse_address,
)
from ina.errors import AddressTaken
from ina.run.launch.agent import server_address
from ina.run.launch.spec import LaunchSpec


class HostAddresses:
    """Reserves a UDP address for each host (worker or fallback server), identified by its switch port."""

    def __init__(self, host: str = "127.0.0.1", base: int | None = None) -> None:
        """Reserve UDP ports of the IP address `host`.

        The host at switch port p gets UDP port `base` + p. If `base` is None, it gets any free UDP port.
        """
        self._host = host
        self._base = base
        self.chosen: dict[int, tuple[str, int]] = {}
        """By switch port, the address that the port's host must use, because the switch already sends to
        it."""
        self._held: dict[tuple[str, int], HeldAddress] = {}
        self._lock = threading.RLock()

    def hold(self, switch: str, port: int, peer: tuple[str, int]) -> tuple[str, int]:
        """Reserve and return the address of the host at a switch port; accept packets there only from `peer`.

        Raises:
            AddressTaken: another process has bound the address.
        """
        with self._lock:
            is_new = (switch, port) not in self._held
            address = self.reserve(switch, port)
            if is_new:
                self.expect(switch, port, peer)
            return address

    def reserve(self, switch: str, port: int) -> tuple[str, int]:
        """Reserve and return the address of the host at a switch port.

        The address accepts packets from any sender until `expect` is called. Raises AddressTaken.
        """
        with self._lock:
            if (switch, port) not in self._held:
                self._held[switch, port] = self._take(port)
            return self._held[switch, port].address

    def expect(self, switch: str, port: int, peer: tuple[str, int]) -> None:
        """Accept only packets from the UDP address `peer` at the address reserved for a switch port."""
        with self._lock:
            self._held[switch, port].expect(peer)

    def strangers(self) -> int:
        """Return the number of packets that hosts received from senders other than the switch.

        Call it regularly: each call empties the sockets. Packets that the kernel drops at a full socket
        count as well, whatever their sender.
        """
        with self._lock:
            return sum(held.strangers() for held in self._held.values())

    def close(self) -> None:
        """Release all addresses."""
        with self._lock:
            for held in self._held.values():
                held.close()
            self._held.clear()

    def _take(self, port: int) -> HeldAddress:
        host, number = self.chosen.get(port, (self._host, 0 if self._base is None else self._base + port))
        try:
            return HeldAddress(host, number)
        except OSError as error:
            raise AddressTaken(
                f"cannot bind UDP {host}:{number} for the host at switch port {port}: {error.strerror}",
                chosen=self._base is not None,
            ) from error


def port_socket() -> socket.socket:
    """Return a UDP socket for a port of the switch, bound to any free UDP port on loopback."""
    bound = OwnSocket()
    bound.take(("127.0.0.1", 0))
    return bound


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
    def transport(self, switch: str, member: Member) -> TransportConfig:
        """Return how a worker sends and receives, for packets to and from `switch`.

        Raises AddressTaken.
        """

    def inside(self, member: Member, call: Callable[[str], T]) -> T:
        """Return the result of `call`, called with the IP address of a worker's host.

        If the host is a network namespace, `call` runs inside it.
        """
        return call("127.0.0.1")

    @contextlib.contextmanager
    def prepared(self, member: Member) -> Iterator[tuple[str, int]]:
        """Prepare the hosts for the start of a job's workers, as long as the context lasts.

        Yield a TCP address on a worker's host, reserved for the store of ``torch.distributed``.
        """
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
        environments: Sequence[Mapping[str, str]],
        rendezvous: Rendezvous,
        on_output: Output,
    ) -> RunningWorkers:
        """Start the workers of a job.

        Args:
            spec: The job.
            environments: Variables of each worker; the position is the rank.
            rendezvous: Notified of workers that have ended.
            on_output: Called with the workers' output.

        Raises LaunchError.
        """
        command = self.command(spec.job.command or ())
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

    def transport(self, switch: str, member: Member) -> TransportConfig:
        """Return how a worker sends and receives. Raises AddressTaken."""
        assert member.port is not None
        sender = partial(TransportConfig, src_mac=member.mac, src_ip=member.ip, udp_port=member.udp_port)
        if path := self._switches[switch].shm_path(member.port):
            return sender("shm", "", path)
        local, remote = self.ends(switch, member.port)
        return sender("loopback", local, remote, held=True)

    def strangers(self) -> int:
        """Return the number of packets that hosts received from senders other than the switch."""
        return self.addresses.strangers()

    def ends(self, switch: str, port: int) -> tuple[str, str]:
        """Reserve the UDP address of the host at a switch port; return the host's and the port's address.

        Raises AddressTaken.
        """
        remote = self._switches[switch].udp_address(port)
        host, number = self.addresses.hold(switch, port, parse_address(remote))
        return f"{host}:{number}", remote


class UdpHosts(Hosts):
    """Hosts with IP addresses of their own. All of them send UDP packets to the same switch address."""

    def __init__(self, switch_address: str) -> None:
        self._switch_address = switch_address

    def transport(self, switch: str, member: Member) -> TransportConfig:
        """Return how a worker sends and receives."""
        return TransportConfig("udp", f"{member.ip}:{member.udp_port}", self._switch_address)
