"""Specification of a run, its results and their metrics, as plain data: the switches, and how jobs start.

Metrics are dictionaries of numbers, whose keys end with the SI unit (``time_s``).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from controller.switches.model import SWITCH_IP
from controller.vocabulary import Job
from ina.errors import BadRun
from ina.run.launch import PRIVATE

if TYPE_CHECKING:  # a switch process needs neither the host library nor NumPy
    from controller import Tls
    from controller.vocabulary import Topology
    from hostlib.launch.launcher import WorkerExit

DEFAULT_PROGRAM = "exclusive"
DEFAULT_LANES = 256
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host} {command}"
"""Template of the command that starts a command on a machine (`agents.launch_command`)."""
SHARED_WINDOW = 128
"""Default window of jobs that share slots, in packets per worker. With larger windows, packets of different
jobs would more often need the same slot (docs/explanations/performance-limits.md)."""
MAX_UDP_PORT = 0xFFFF
NAMELESS = ""
"""Name of a job that is given on the command line; jobs of a job file have names."""
PRIVATE_THREADS = "OMP_NUM_THREADS"

RankReports = Mapping[int, Mapping[str, float]]
"""The latest report of each rank of a job: counters by name."""


@dataclass(frozen=True, slots=True)
class MachineAtPort:
    """A machine of workers at a running switch: the switch's port, and the machine's addresses."""

    port: int
    ip: str
    mac: str


UDP_BASE, WORKER_BASE = ("127.0.0.1", 27000), ("127.0.0.1", 28000)
"""Default addresses and base UDP ports of a running switch and of its hosts. Port p of the switch
is bound to UDP port 27000 + p. The host at port p of the switch is bound to UDP port 28000 + p.
These are below the ports that Linux gives to sockets which ask for any port (32768 to 60999)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A running switch, and how a run uses it."""

    address: str
    """Address of the switch's P4Runtime service, ``host:port`` or ``unix:path``."""
    tls: Tls | None = None
    udp_base: tuple[str, int] | None = None
    """Address and base UDP port of the switch: port p of the switch is bound to this UDP port plus p.
    None: the addresses that the switch reports, or `UDP_BASE` if it reports none."""
    worker_base: tuple[str, int] | None = None
    """Address and base UDP port of the hosts: the host at port p of the switch is bound to this UDP port plus
    p. None: the addresses that the switch reports, or `WORKER_BASE` if it reports none."""
    ports: tuple[int, ...] = tuple(range(1, 256))
    """Ports of the switch that jobs may use."""
    machines: tuple[MachineAtPort, ...] = ()
    """The workers' machines, if workers run on other machines than the switch; empty otherwise. If there are
    such machines, `udp_base` and `worker_base` are ignored."""
    ip: str = SWITCH_IP
    """The IP address to which the workers' machines (`machines`) send packets for the switch."""

    def __post_init__(self) -> None:
        """Raise BadRun if a switch port in `ports` would need a UDP port above 65535."""
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
    secret: str = field(default="", repr=False)
    """Secret shared with the servers that run ``ina fallback --serve``."""
    listen: str | None = None
    """Address of this machine at which ranks meet; None: the address at which the first machine reaches
    this machine."""


@dataclass(frozen=True, slots=True)
class Captures:
    """Packet captures at all ports of the started switches."""

    folder: Path
    limit: int
    """Maximum size of a capture file, in bytes; each port has one file."""
    snap: int
    """Maximum number of bytes to keep of each frame."""

    def options(self, switch: str) -> list[str]:
        """Return the options of ``ina switch`` for these captures."""
        return [
            *("--pcap", str(self.folder), "--pcap-name", switch),
            *("--pcap-limit", str(self.limit), "--pcap-snap", str(self.snap)),
        ]


PortKind = Literal["auto", "shm", "udp"]
"""How packets pass between a switch's port and a worker on this machine: through shared memory (``shm``),
which only a switch in generated C supports, or through UDP on loopback (``udp``). ``auto`` means shared
memory if there is a C compiler."""


@dataclass(frozen=True, slots=True)
class FabricSpec:
    """The switches of a run, running or to be started, and their program."""

    program: str | None = None
    """Name of a program of p4src, or a path that ends in ``.p4``; None: the running program, or
    `DEFAULT_PROGRAM` if none runs."""
    lanes: int | None = None
    """Number of values in a packet; None: as in the running program, or `DEFAULT_LANES` if none runs."""
    replace_program: bool = False
    """Whether to replace a running switch's program if it is another one than the run needs."""
    lease_s: float | None = 60.0
    """Time, in s, for which a job stays admitted if its lease is not renewed; None: jobs need no leases,
    because the switches end with this process."""
    attached: Attachment | None = None
    """The switch, if it runs already; None: switches are started, as the attributes below describe."""
    p4runtime: str = PRIVATE
    """P4Runtime address of the first switch; the other switches use the next ports."""
    tree: tuple[int, ...] = ()
    """Number of children of each switch, from the root's level down; the last level's children are hosts.
    Empty: one switch."""
    topology: Topology | None = None
    """The switches, hosts and links, including faults of links; None: `tree` describes them."""
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
    """The job. It starts `job.arrival_s` seconds after the start of the run.

    `job.slots` None means `DEFAULT_SLOTS`, or all slots if jobs share slots. `job.window` None means half the
    number of slots, or `SHARED_WINDOW` packets if jobs share slots."""
    first_slot: int = 0
    """Index of the job's first slot, if several jobs use one array of slots."""
    timeout_s: float = 8.0
    straggler_timeout_s: float = 600.0
    log: str | None = None
    """Path of the file to which workers write a line about each collective (`hostlib.io.joblog`)."""
    machines: tuple[tuple[int, ...], ...] = ()
    """The ranks on each machine; empty if the run does not depend on which ranks share a machine."""
    hierarchical: bool = False
    """Whether the ranks of a machine sum there first. The switch then sees one worker per machine."""
    places: tuple[str, ...] = ()
    """Name in the cluster of each machine in `machines`; empty without a cluster."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of the workers, such as the address of their `TurnServer`."""
    inherited: tuple[str, ...] | None = None
    """Patterns of the variables that workers inherit from the process that starts them; None: all."""
    offset: int = 0
    """In a group: index in `hostlib.interleave.STAGES` of the stage that the job may run first."""
    logs: str = ""
    """The folder for the ranks' output; "": the output is not kept."""
    granted: int = 0
    """Number of the job's exclusive slots, summed over all switches."""
    in_flight: int = 0
    """Maximum number of packets in flight; 0: only the job's window limits them."""
    driver: bool = False
    """Whether the job's command is a driver of Ray: it is started once, and Ray Train starts the workers."""

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.name

    @property
    def ranks(self) -> dict[str, int]:
        """The number of ranks on each machine in `places`, by its name."""
        return {place: len(ranks) for place, ranks in zip(self.places, self.machines, strict=True)}

    @property
    def children(self) -> int:
        """Number of senders of packets to switches: machines if `hierarchical`, else ranks."""
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
    reports: RankReports
    counters: Mapping[str, int] = field(default_factory=dict)
    """Number of the job's packets at all switches together, by outcome."""
    switches: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Number of the job's packets at each switch, by outcome."""
    fallback: Mapping[str, float] = field(default_factory=dict)
    """The fallback server's statistics for this job."""
    interrupted: bool = False
    """Whether the workers were cancelled before they had ended."""


Metrics = Mapping[str, float]
COUNTS: Final = ("collectives", "elements", "time_s", "packets_sent", "packets_resent")
"""Keys of a rank's report from which `metrics` are computed."""


def add_reports(reports: RankReports, ranks: Sequence[int], of_group: RankReports) -> RankReports:
    """Return the reports of a job's ranks with the counts of a group of these ranks added.

    Args:
        reports: The latest report of each rank of the job.
        ranks: The job's rank of each rank of the group.
        of_group: The latest report of each rank of the group.
    """
    sums = dict(reports)  # the reports themselves are not copied: few ranks are in groups
    for place, report in of_group.items():
        own = sums.get(ranks[place], {})
        counts = {name: own.get(name, 0.0) + report.get(name, 0.0) for name in COUNTS}
        sums[ranks[place]] = {**own, **counts}
    return sums


def add_group(job: JobResult, ranks: Sequence[int], group: JobResult) -> JobResult:
    """Return the result of a job with the counts of a group of its ranks added; see `add_reports`."""
    switches = {name: Counter(outcomes) for name, outcomes in job.switches.items()}
    for name, outcomes in group.switches.items():
        switches.setdefault(name, Counter()).update(outcomes)
    counters = Counter[str]()
    for outcomes in switches.values():
        counters.update(outcomes)  # a sum of counters would leave out zeros
    return replace(
        job,
        reports=add_reports(job.reports, ranks, group.reports),
        counters=counters,
        switches=switches,
        fallback={
            name: job.fallback.get(name, 0.0) + group.fallback.get(name, 0.0)
            for name in {**job.fallback, **group.fallback}
        },
    )


def summed_bytes(reports: RankReports) -> float:
    """Return the number of bytes that the rank with the largest contribution has contributed to sums."""
    return max((report.get("elements", 0.0) for report in reports.values()), default=0.0) * 4


def goodput_bps(reports: RankReports) -> float:
    """Return the goodput in bits per second: summed bits, divided by the time spent in collectives.

    Each of these two values is the largest of all ranks. The goodput is 0 before the first collective.
    """
    busy = max((report.get("time_s", 0.0) for report in reports.values()), default=0.0)
    return summed_bytes(reports) * 8 / busy if busy else 0.0


def metrics(result: JobResult) -> dict[str, float]:
    """Return the metrics of a job by name; names end with the SI unit, such as ``time_s``."""
    reports = list(result.reports.values())

    def total(name: str) -> float:
        return sum(report.get(name, 0.0) for report in reports)

    busy = max((report.get("time_s", 0.0) for report in reports), default=0.0)
    numbers = {
        "time_s": result.time_s,
        "allreduces": max((report.get("collectives", 0.0) for report in reports), default=0.0),
        "summed_bytes": summed_bytes(result.reports),
        "allreduce_time_s": busy,
        "goodput_bps": goodput_bps(result.reports),
        "sent_packets": total("packets_sent"),
        "resent_packets": total("packets_resent"),
    }
    numbers |= {f"switch_{name}_packets": value for name, value in result.counters.items()}
    numbers |= {f"fallback_{name}": value for name, value in result.fallback.items()}
    return numbers


def total(jobs: Iterable[Metrics]) -> dict[str, float]:
    """Return the sum over all jobs of each metric that is a count; leave out times and rates."""
    sums: dict[str, float] = {}
    for numbers in jobs:
        for key, value in numbers.items():
            if not key.endswith(("_s", "_bps")):
                sums[key] = sums.get(key, 0.0) + value
    return sums


def by_switch(jobs: Iterable[JobResult]) -> dict[str, Metrics]:
    """Return, by switch, the metrics that count packets by outcome, summed over all jobs."""
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        for switch, outcomes in job.switches.items():
            packets = {f"{name}_packets": number for name, number in outcomes.items()}
            counts.setdefault(switch, Counter()).update(packets)
    return dict(sorted(counts.items()))


def refusals(refused: Mapping[str, int]) -> dict[str, float]:
    """Convert the numbers of refused packets, by reason, to metrics. Refused packets belonged to no job."""
    return {f"refused_{name}_packets": float(value) for name, value in refused.items()}
