"""The switches of a run: started, or found running; told what to run; taken down again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bmv2_topos import Topology
from controller import Controller
from controller.cli import layout, options
from controller.cli.embedded import EmbeddedSwitch
from controller.cli.errors import USAGE, Failure
from controller.cli.fallback_process import FallbackProcess
from controller.cli.programs import bundle
from controller.cli.spec import ClusterSpec

FALLBACK_HOST = "p1"


class Switch(Protocol):
    """A switch that runs."""

    @property
    def address(self) -> str:
        """Where its P4Runtime service listens."""
        ...

    def udp_address(self, port: int) -> str:
        """Return where a port's UDP socket is bound."""
        ...

    def ended(self) -> str | None:
        """Return how it ended, or None."""
        ...


@dataclass(frozen=True, slots=True)
class AttachedSwitch:
    """A switch that somebody else started; port p is UDP port `base` + p of `host`."""

    address: str
    host: str
    base: int

    def udp_address(self, port: int) -> str:
        """Return where a port's UDP socket should be bound."""
        return f"{self.host}:{self.base + port}"

    def ended(self) -> str | None:
        """Return None: its end shows in what it does not answer."""
        return None


class Cluster:
    """Switches that run a program, their controllers, and the fallback server once a job needs one."""

    def __init__(
        self,
        spec: ClusterSpec,
        topology: Topology | None,
        switches: Mapping[str, Switch],
        controllers: Mapping[str, Controller],
    ) -> None:
        self.spec = spec
        self.topology = topology
        """None for an attached switch, whose ports the controller chooses."""
        self.switches = switches
        self.controllers = controllers
        self.lock = threading.RLock()
        """To be held while anything of the controllers is called."""
        self.fallback: FallbackProcess | None = None
        self._hosts: dict[str, list[str]] = {}
        if topology is not None:
            for host in topology.hosts:
                if host.name != FALLBACK_HOST:
                    self._hosts.setdefault(topology.switch_of(host.name), []).append(host.name)

    @property
    def root(self) -> str:
        """The root switch's name."""
        return next(iter(self.switches))

    def fallback_port(self) -> int | None:
        """Return the root's port for the fallback server; None lets the controller choose."""
        if self.fallback is not None:
            return self.fallback.port
        return self.topology.port_to(self.root, FALLBACK_HOST) if self.topology else None

    def start_fallback(self, port: int) -> FallbackProcess:
        """Start the fallback server at a port of the root, unless it runs already. Raises Failure."""
        with self.lock:
            if self.fallback is None:
                address = self.switches[self.root].udp_address(port)
                self.fallback = FallbackProcess(port, address, self.spec.lanes)
            return self.fallback

    @contextlib.contextmanager
    def hosts(self, workers: int) -> Iterator[list[str]]:
        """Reserve a host for each rank, evenly over the switches at the bottom."""
        with self.lock:
            leaves = [leaf for leaf, below in layout.children(self._require_topology()).items() if not below]
            taken = [self._hosts[leaf].pop(0) for leaf in layout.spread(leaves, workers)]
        try:
            yield taken
        finally:
            with self.lock:
                for host in taken:
                    self._hosts[self._require_topology().switch_of(host)].append(host)

    def ended(self) -> str | None:
        """Return which part is gone for good, and how, or None; to be called several times per second."""
        why = self.switch_ended()
        return self.fallback.check() if self.fallback and not why else why

    def switch_ended(self) -> str | None:
        """Return how a switch ended, if one did."""
        return next(filter(None, (switch.ended() for switch in self.switches.values())), None)

    def refused(self) -> dict[str, int]:
        """Return the packets of no job, by reason, over all switches. Raises ControllerError."""
        total: dict[str, int] = {}
        with self.lock:
            for controller in self.controllers.values():
                for name, number in controller.row_counters(0).items():
                    total[name] = total.get(name, 0) + number
        return {name: number for name, number in total.items() if number}

    def close(self) -> None:
        """Stop the fallback server; the switches are stopped by who started them."""
        if self.fallback is not None:
            self.fallback.stop()

    def _require_topology(self) -> Topology:
        assert self.topology is not None, "an attached switch has no hosts"
        return self.topology


@contextlib.contextmanager
def open_cluster(spec: ClusterSpec, jobs: Sequence[int]) -> Iterator[Cluster]:
    """Start or find the switches for jobs of so many workers that run at the same time.

    Raises:
        Failure: the options do not fit together, or a switch cannot be used.
        ControllerError: a switch cannot be reached, or does not take the program.
    """
    with contextlib.ExitStack() as stack:
        switches: Mapping[str, Switch]
        topology = None
        if spec.switch == "embedded":
            machines = spec.tree or (max(max(jobs), 1),)
            topology = layout.plan(machines, jobs, fallback=spec.shared)
            _check_transit(spec, topology)
            switches = _start(spec, topology, stack)
        else:
            switches = {"s1": _attach(spec)}
        controllers = {}
        for name, switch in switches.items():
            controllers[name] = stack.enter_context(Controller.connect(switch.address))
        if spec.switch != "embedded":
            controllers["s1"].load(bundle(spec.program, spec.lanes))
        cluster = Cluster(spec, topology, switches, controllers)
        stack.callback(cluster.close)
        yield cluster


def _attach(spec: ClusterSpec) -> AttachedSwitch:
    if not spec.switch.startswith("grpc://"):
        raise Failure(f"--switch {spec.switch!r}: want embedded or grpc://host:port", exit_code=USAGE)
    if spec.impairments or spec.link_impairments:
        raise Failure("impairments belong to the switch: give them to 'ina switch'", exit_code=USAGE)
    if spec.tree:
        raise Failure("--tree starts its switches itself: leave --switch out", exit_code=USAGE)
    server = spec.switch.removeprefix("grpc://")
    options.parse_address("--switch", server)
    host, base = options.parse_address("--udp-base", spec.udp_base)
    return AttachedSwitch(server, host, base)


def _check_transit(spec: ClusterSpec, topology: Topology) -> None:
    names = [switch.name for switch in topology.switches if switch.name != topology.root]
    for name in sorted(spec.transit):
        if name not in names:
            known = f"there are {', '.join(names)}" if names else "there is only the root (see --tree)"
            raise Failure(f"--transit {name!r}: {known}", exit_code=USAGE)


def _start(spec: ClusterSpec, topology: Topology, stack: contextlib.ExitStack) -> dict[str, EmbeddedSwitch]:
    """Start all switches, level by level: a parent's port learns from what comes whom to answer."""
    switches: dict[str, EmbeddedSwitch] = {}
    alone = len(topology.switches) == 1
    for number, switch in enumerate(topology.switches):
        name = switch.name
        # Each has its own random losses, and the same in every run.
        arguments = ["--program", spec.program, "--lanes", str(spec.lanes), "--seed", str(spec.seed + number)]
        for port, link in topology.ports[name].items():
            other = link.other(name)
            address = "udp:0"
            if other == topology.parents[name]:  # waits for the parent; neighbours start at the same time
                peer = switches[other].udp_address(topology.port_to(other, name))
                address += f":{peer.rpartition(':')[2]}"
            arguments += ["--port", f"{port}={address}"]
            trunk = other in topology.ports
            impairments = spec.link_impairments if trunk else spec.impairments
            if impairments:
                # A link between switches has two ports: each answers for what leaves it.
                arguments += ["--impair", f"{port}:{_outgoing(impairments) if trunk else impairments}"]
        title = "the switch process" if alone else f"the process of switch {name}"
        switches[name] = stack.enter_context(EmbeddedSwitch(arguments, title=title))
    return switches


def _outgoing(impairments: str) -> str:
    return ",".join(f"tx.{part}" for part in impairments.split(","))
