"""Specification of a run: the switches that carry the jobs, and each job. Plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from controller.switches.model import SWITCH_IP
from controller.vocabulary import Job
from ina.errors import BadRun
from ina.launch import PRIVATE

if TYPE_CHECKING:  # a switch process needs neither the host library nor NumPy
    from controller import Tls
    from controller.vocabulary import Topology
    from hostlib.launch.launcher import WorkerExit

DEFAULT_PROGRAM = "exclusive"
DEFAULT_LANES = 256
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host} {command}"
"""Template of the command that starts a command on a machine (`agents.launch_command`)."""
SHARED_WINDOW = 128
"""Packets in flight per worker in shared slots: more collide (docs/explanations/performance-limits.md)."""
MAX_UDP_PORT = 0xFFFF
NAMELESS = ""
"""Name of a job that is given on the command line; jobs of a job file have names."""
PRIVATE_THREADS = "OMP_NUM_THREADS"

Reports = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class MachineAtPort:
    """A machine of workers at a running switch: the switch's port, and the machine's addresses."""

    port: int
    ip: str
    mac: str


UDP_BASE, WORKER_BASE = ("127.0.0.1", 47000), ("127.0.0.1", 48000)
"""Default addresses of an attached switch and its hosts: port p of the switch is bound to the first UDP port
plus p, and the host at port p to the second plus p."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A running switch, and how a run uses it."""

    address: str
    """Address of its P4Runtime service, ``host:port`` or ``unix:path``."""
    tls: Tls | None = None
    replace_program: bool = False
    """Whether another running program may be replaced."""
    lease_s: float = 60.0
    """Time for which a job stays admitted without renewal of its lease."""
    udp_base: tuple[str, int] | None = None
    """Port p of the switch is bound to this UDP port plus p; None: as the switch reports, or `UDP_BASE`."""
    worker_base: tuple[str, int] | None = None
    """The host at port p is bound to this UDP port plus p; None: as the switch reports, or `WORKER_BASE`."""
    ports: tuple[int, ...] = tuple(range(1, 256))
    """Ports of the switch that jobs may use."""
    machines: tuple[MachineAtPort, ...] = ()
    """The workers' machines, if workers run on other machines than the switch; then `udp_base` and
    `worker_base` are ignored."""
    ip: str = SWITCH_IP
    """The IP address to which those machines send packets for the switch."""

    def __post_init__(self) -> None:
        """Raise BadRun if a port's UDP port would have an invalid number."""
        last = max(self.ports)
        for setting, given in (("worker_base", self.worker_base), ("udp_base", self.udp_base)):
            host, base = given or ("", 0)
            if base + last > MAX_UDP_PORT:
                raise BadRun(
                    f"port {last} would be UDP port {base + last}, above {MAX_UDP_PORT}",
                    setting=setting,
                    value=f"{host}:{base}",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Running switches, and the machines at their ports, from a cluster file."""

    topology: Topology
    tls: Tls | None = None
    replace_program: bool = False
    """Whether another running program of a switch may be replaced."""
    lease_s: float = 60.0
    """Time for which a job stays admitted without renewal of its lease."""
    secret: str = field(default="", repr=False)
    """Secret shared with the servers that run ``ina fallback --serve``."""
    listen: str | None = None
    """Address of this machine at which ranks meet; None: the local address of the route to the
    first machine."""


@dataclass(frozen=True, slots=True)
class Captures:
    """Packet captures at all ports of the started switches."""

    folder: Path
    limit: int
    """Largest size of a capture file in bytes; each port has one file."""
    snap: int
    """Number of bytes kept of each frame."""

    def options(self, switch: str) -> list[str]:
        """Return the options of ``ina switch`` for these captures."""
        return [
            *("--pcap", str(self.folder), "--pcap-name", switch),
            *("--pcap-limit", str(self.limit), "--pcap-snap", str(self.snap)),
        ]


PortKind = Literal["auto", "shm", "udp"]
"""Kind of a switch's port towards a worker on this machine: shared memory, which only the compiled switch
has, or UDP on loopback; auto: shared memory where there is a C compiler."""


@dataclass(frozen=True, slots=True)
class FabricSpec:
    """Switches and their program."""

    program: str | None = None
    """Name of a program of p4src, or a path that ends in ``.p4``; None: the running program, or
    `DEFAULT_PROGRAM`."""
    lanes: int | None = None
    """Values per packet; None: the running program's number, or `DEFAULT_LANES`."""
    attached: Attachment | None = None
    """The switch, if it runs already; None: switches are started, as the attributes below describe."""
    p4runtime: str = PRIVATE
    """P4Runtime address of the first switch; the other switches use the next ports."""
    tree: tuple[int, ...] = ()
    """Children per switch, level by level, hosts last; empty: one switch."""
    topology: Topology | None = None
    """The switches, hosts and links, including faults of links; None: made from `tree`."""
    transit: frozenset[str] = frozenset()
    """Switches that forward without aggregating."""
    impairments: str = ""
    """Faults of ports towards workers and the fallback server, in the form of ``ina switch --impair``."""
    link_impairments: str = ""
    """Faults of ports between switches."""
    seed: int = 0
    captures: Captures | None = None
    port_kind: PortKind = "auto"
    """Kind of the ports between local workers and their switch."""

    @property
    def several(self) -> bool:
        """Whether there are several switches."""
        return bool(self.tree) or (self.topology is not None and len(self.topology.switches) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One job, and how it is launched in this run."""

    job: Job
    """The job, launched `arrival_s` after the run began. Default number of slots: `DEFAULT_SLOTS`, or all
    slots if jobs share them. Default window: half its slots, or `SHARED_WINDOW` if jobs share slots."""
    first_slot: int = 0
    """The first of the job's slots, if several jobs use one array of slots."""
    timeout_s: float = 8.0
    straggler_timeout_s: float = 600.0
    log: str | None = None
    """File for a line about each collective (`hostlib.io.joblog`)."""
    machines: tuple[tuple[int, ...], ...] = ()
    """The ranks of each machine; empty if it does not matter which ranks share a machine."""
    hierarchical: bool = False
    """Whether the ranks of a machine sum there first, so that the machine is one worker for the switch."""
    places: tuple[str, ...] = ()
    """The names of `machines` in the cluster file; empty without a cluster file."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of the workers, such as the address of their group."""
    inherited: tuple[str, ...] | None = None
    """Patterns of the variables that workers inherit from the process that starts them; None: all."""

    @property
    def children(self) -> int:
        """Number of workers that send to switches: machines if `hierarchical`, else ranks."""
        return len(self.machines) if self.hierarchical else self.job.workers

    def environment(self) -> dict[str, str]:
        """Return the environment variables that are the same for all workers."""
        # the workers share this machine's cores
        threads = {} if PRIVATE_THREADS in os.environ else {PRIVATE_THREADS: "1"}
        return {**threads, **self.variables}


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a job."""

    failure: WorkerExit | None
    time_s: float
    reports: Reports
    counters: Mapping[str, int] = field(default_factory=dict)
    """Number of packets at all switches, by outcome."""
    switches: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Number of packets by switch and outcome."""
    fallback: Mapping[str, float] = field(default_factory=dict)
    """The fallback server's statistics for this job."""
    interrupted: bool = False
    """Whether the workers were cancelled before they had ended."""
