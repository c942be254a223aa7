"""The hosts of a testbed, as places where workers run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from bmv2_topos.testbeds.netns import State, namespaces
from bmv2_topos.testbeds.netns.names import interface, namespace
from controller.switches.model import INA_UDP_PORT, SWITCH_IP, Member
from hostlib.launch.launcher import cannot_run
from ina.run.launch.hosts import UdpHosts

T = TypeVar("T")

_HOST = "INA_NAMESPACE"


class TestbedHosts(UdpHosts):
    """The hosts of a testbed, which are network namespaces of this machine."""

    __test__ = False  # pytest takes classes called Test* for tests

    def __init__(self, state: State) -> None:
        super().__init__(f"{SWITCH_IP}:{INA_UDP_PORT}")
        self._name, self._topology = state.name, state.topology

    def inside(self, member: Member, call: Callable[[str], T]) -> T:
        """Return the result of `call`, called with the IP address of a worker's host.

        `call` runs inside the host's network namespace.
        """
        return namespaces.inside(namespace(self._name, self.machine(member)), lambda: call(member.ip))

    def command(self, command: Sequence[str]) -> Sequence[str]:
        """Return the command that runs `command` in the namespace named by the variables of `environment`.

        Raises LaunchError.
        """
        if shutil.which(command[0]) is None and command[0] not in ("python", "python3"):
            raise cannot_run(command[0], "No such file or directory")
        return ["sh", "-c", f'exec ip netns exec "${_HOST}" "$@"', "sh", *command]

    def environment(self, member: Member) -> Mapping[str, str]:
        """Return the environment variables that name a worker's host and its network interface (for gloo)."""
        host = self.machine(member)
        return {_HOST: namespace(self._name, host), "GLOO_SOCKET_IFNAME": interface(host)}

    def machine(self, member: Member) -> str:
        """Return the name of a worker's host."""
        (host,) = (each.name for each in self._topology.servers if self._topology.ip(each.name) == member.ip)
        return host
