"""Options of ``ina run`` that other commands share: memory, time-outs, jobs, switches."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from controller.switches.model import Feature, SwitchInfo
from controller.vocabulary.job import MAX_WINDOW, Encoding, Job
from hostlib.windows import find
from ina.cli import options
from ina.cli.command import USAGE, Declared, Failure, failing_at, plural, refuse
from ina.run.launch import PRIVATE
from ina.run.launch.spec import (
    NAMELESS,
    Attachment,
    Captures,
    FabricSpec,
    LaunchSpec,
    PortKind,
)
from ina.run.switches.topology import MAX_CHILDREN

EMBEDDED = "embedded"
MEMORY = "Switch memory and windows"
SWITCHES = "Switches"
MAX_LEASE_S = 366 * 86400
LINK_FAULTS = "link faults belong to the switch: give them to 'ina switch --impair'"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """Options for slots, windows, priorities and encodings; None: as in the job file, or the default."""

    slots: Annotated[
        int | None,
        Declared(
            min=0,
            rich_help_panel=MEMORY,
            help="Allocate this many aggregator slots. With exclusive slots: to each job; default: 1024. "
            "With shared slots: to all jobs together; default: all slots; 0: the fallback server sums "
            "everything.",
        ),
    ] = None
    window: Annotated[
        int | None,
        Declared(
            min=1,
            max=MAX_WINDOW,
            rich_help_panel=MEMORY,
            help="Keep at most this many packets in flight per worker. Default: half the slots if "
            "exclusive, 128 if shared.",
        ),
    ] = None
    preempt: Annotated[
        bool | None,
        Declared(
            "--preempt/--no-preempt",
            rich_help_panel=MEMORY,
            help="Allow packets to take lower-priority packets' slots, if jobs share slots. Default: no.",
        ),
    ] = None
    priority: Annotated[
        int | None,
        Declared(
            min=0,
            max=255,
            metavar="PRIORITY",
            rich_help_panel=MEMORY,
            help="Give all packets this priority; higher is more urgent. Default: measured for each tensor.",
        ),
    ] = None
    congestion: options.Congestion = None
    numbers: Annotated[
        Encoding | None,
        Declared(
            rich_help_panel=MEMORY,
            help="Encode float32 values with one exponent per packet and 32 bits per value (exponent), or "
            "16, 8 or 4 bits per value (block16; block8, up to 127 workers; block4, up to 7), or with a "
            "fixed scale (fixed). Default: exponent.",
        ),
    ] = None

    def of(self, entry: Job) -> Job:
        """Return the job `entry` of a job file, with the values of the options that are given."""
        given = {key: value for key, value in asdict(self).items() if value is not None}
        return replace(entry, **given)

    def job(self, workers: int, command: Sequence[str] = ()) -> Job:
        """Return the job that a command line describes without a job file.

        Raises Failure for fewer than one worker.
        """
        refuse(workers < 1, f"{workers} workers: want 1 or more")
        return self.of(Job(name=NAMELESS, workers=workers, command=tuple(command)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Options for how long workers wait for each other."""

    timeout: Annotated[
        float,
        Declared(min=0.1, metavar="SECONDS", help="Fail if no packet arrives for this long, in seconds."),
    ] = 8.0
    straggler_timeout: Annotated[
        float,
        Declared(
            min=0.1,
            metavar="SECONDS",
            help="Fail if a slow rank makes no progress for this long, in seconds, although it still sends "
            "signs of life; at least --timeout.",
        ),
    ] = 600.0

    def of(self, spec: LaunchSpec) -> LaunchSpec:
        """Return `spec` with these time-outs."""
        straggler_timeout_s = max(self.timeout, self.straggler_timeout)
        return replace(spec, timeout_s=self.timeout, straggler_timeout_s=straggler_timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsToRun:
    """Options for the jobs of a run: a command, or the jobs of a file."""

    command: Annotated[
        list[str] | None,
        Declared(
            argument=True, help="Run this program in each worker; give it after --.", metavar="-- COMMAND"
        ),
    ] = None
    jobs: Annotated[
        Path | None,
        Declared(metavar="FILE", help="Run all jobs of this file at the same time, instead of COMMAND."),
    ] = None
    name: Annotated[
        str,
        Declared("--name", metavar="NAME", help="Give the job of COMMAND this name. Default: none."),
    ] = NAMELESS
    log: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            help="Write one line of JSON per collective and worker to this file; replaces the file.",
        ),
    ] = None
    memory: MemoryOptions
    times: Timeouts

    def entries(self, workers: int | None, *, default: int) -> list[Job]:
        """Return the jobs of the file ``--jobs``, or the job of COMMAND.

        `workers` is the value of ``-np``; None: it is not given, and the job of COMMAND has `default`
        workers. Raises Failure if neither ``--jobs`` nor COMMAND is given, and if COMMAND, ``-np`` or
        ``--name`` is given together with ``--jobs``.
        """
        if self.jobs is None:
            refuse(not self.command, "nothing to run: give -- COMMAND..., or --jobs FILE")
            return [self.alone(default if workers is None else workers)]
        refuse(
            self.command or workers is not None or self.name != NAMELESS,
            "--jobs FILE and COMMAND, with its -np and --name, are mutually exclusive: give one of them",
        )
        from ina.cli import job_files  # also loads the readers of files

        return list(job_files.jobs(self.jobs, "run", require=("command",)))

    def alone(self, workers: int) -> Job:
        """Return the job of COMMAND. Raises Failure for fewer than one worker."""
        return replace(self.memory.job(workers, self.command or ()), name=self.name)

    def launches(self, entries: Sequence[Job], offers: SwitchInfo) -> list[LaunchSpec]:
        """Return how the jobs are launched, and begin the file of --log.

        Args:
            entries: The jobs.
            offers: What the switches' program offers to jobs.

        Raises Failure for features that the program lacks, or a file that cannot be written.
        """
        specs = [LaunchSpec(job=entry) for entry in entries]
        if self.jobs is not None:
            specs = specs_of_file(self.memory, entries, shared=offers.shared)
        check_memory(self.memory, specs, offers)
        place = None if self.log is None else str(begin_log(self.log))
        return [replace(self.times.of(each), log=place) for each in specs]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchOptions:
    """Options for the switches of a run, which the run starts, or which run already."""

    tree: Annotated[
        str | None,
        Declared(
            metavar="NxN…",
            rich_help_panel=SWITCHES,
            help="Start a tree of switches with this many children per switch, level by level; the "
            "last number counts machines: 2x4, 2x2x2.",
        ),
    ] = None
    port_kind: Annotated[
        PortKind,
        Declared(
            rich_help_panel=SWITCHES,
            help="Connect workers to the started switch through shared memory (shm) or UDP on "
            "loopback (udp); auto: shm if a C compiler is present, else udp. With udp, jobs with shared "
            "slots continue after their switch dies and is restarted.",
        ),
    ] = "auto"
    transit: Annotated[
        str,
        Declared(
            metavar="SWITCH,…",
            rich_help_panel=SWITCHES,
            help="Forward without aggregating at these switches of --tree (s2, s3, …).",
        ),
    ] = ""
    switch: Annotated[
        str,
        Declared(
            rich_help_panel=SWITCHES,
            help="Start a switch (embedded), or use a running one: grpc://HOST:PORT or unix:PATH.",
        ),
    ] = EMBEDDED
    p4runtime: Annotated[
        str | None,
        Declared(
            metavar="[HOST:]PORT",
            rich_help_panel=SWITCHES,
            help="Serve the started switch's P4Runtime to other processes at this address (port 0: any free "
            "port); further switches of --tree use the next ports. Default: a private socket.",
        ),
    ] = None
    replace_program: Annotated[
        bool,
        Declared(
            "--replace-program",
            rich_help_panel=SWITCHES,
            help="With --switch ADDRESS: load the program even if the switch runs another program, whose "
            "table entries are lost.",
        ),
    ] = False
    udp_base: Annotated[
        str | None,
        Declared(
            metavar="HOST:PORT",
            rich_help_panel=SWITCHES,
            help="With --switch ADDRESS: send packets for port p of the switch to HOST, UDP port PORT + p. "
            "Default: the addresses that the switch reports by gNMI, or 127.0.0.1:27000.",
        ),
    ] = None
    worker_base: Annotated[
        str | None,
        Declared(
            metavar="HOST:PORT",
            rich_help_panel=SWITCHES,
            help="With --switch ADDRESS: bind the worker at port p of the switch to HOST, UDP port PORT + p. "
            "Default: the addresses that the switch reports by gNMI, or 127.0.0.1:28000.",
        ),
    ] = None
    ports: Annotated[
        str,
        Declared(
            metavar="A-B,C",
            rich_help_panel=SWITCHES,
            help="With --switch ADDRESS: connect workers to these ports of the switch.",
        ),
    ] = "1-255"
    lease: Annotated[
        float,
        Declared(
            min=1,
            max=MAX_LEASE_S,
            metavar="SECONDS",
            rich_help_panel=SWITCHES,
            help="With --switch ADDRESS: keep jobs admitted for this many seconds after this command is "
            "killed.",
        ),
    ] = 60.0

    @property
    def fan_outs(self) -> tuple[int, ...]:
        """Children per switch, level by level; empty for a single switch. Raises Failure."""
        return parse_tree(self.tree) if self.tree else ()

    def transit_switches(self) -> frozenset[str]:
        """Return the names given to ``--transit``. Raises Failure if there is no tree."""
        names = frozenset(name for name in self.transit.split(",") if name)
        if names and not self.tree:
            raise Failure(
                f"--transit {min(names)!r}: one switch has no transit switches; give --tree, too",
                exit_code=USAGE,
            )
        return names

    def listen_address(self) -> str:
        """Return the address at which a started switch serves P4Runtime. Raises Failure."""
        if self.p4runtime is None:
            return PRIVATE
        address = self.p4runtime if ":" in self.p4runtime else f"127.0.0.1:{self.p4runtime}"
        options.parse_address("--p4runtime", address)
        return address

    def attachment(self, tls: options.TlsOptions, *, cluster: bool) -> Attachment | None:
        """Return the running switch that --switch names; None if this command starts the switches.

        Args:
            tls: The TLS options.
            cluster: Whether a cluster file names running switches instead.

        Raises Failure for options that do not suit the switches; BadRun.
        """
        connection = tls.tls(self.switch)
        ports = options.parse_numbers("--ports", self.ports)
        if self.switch == EMBEDDED:
            for option, given in (
                ("--tls-ca", connection),
                ("--replace-program", self.replace_program),
                ("--udp-base", self.udp_base),
                ("--worker-base", self.worker_base),
            ):
                refuse(
                    given not in (None, False) and not cluster,
                    f"{option} is for a running switch: give --switch ADDRESS, too",
                )
            return None
        refuse(
            self.p4runtime is not None,
            "--p4runtime is for a switch that this command starts: leave --switch out",
        )
        refuse(
            self.port_kind != "auto",
            "--port-kind is for a switch that this command starts: give the ports of a running switch to"
            " 'ina switch'",
        )
        refuse(self.tree, "--tree starts switches of its own: leave --switch out")
        return Attachment(
            address=options.parse_switch("--switch", self.switch, other=f"{EMBEDDED}, "),
            tls=connection,
            udp_base=_base("--udp-base", self.udp_base),
            worker_base=_base("--worker-base", self.worker_base),
            ports=ports,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricOptions:
    """Options for the switches of a run, their program and the links' faults."""

    program: options.OpenProgram = None
    lanes: options.OpenLanes = None
    switches: SwitchOptions
    tls: options.TlsOptions
    faults: options.FaultOptions

    def fabric(self, *, captures: Captures | None = None, cluster: bool = False) -> FabricSpec:
        """Return the switches that the options describe.

        Args:
            captures: Captures at the switches' ports; None: no captures.
            cluster: Whether a cluster file names the switches, which run already.

        Raises Failure if options contradict each other.
        """
        fan_outs = self.switches.fan_outs
        refuse(
            self.faults.link_loss is not None and not fan_outs,
            "--link-loss is for links between switches: give --tree, too",
        )
        impairments = self.faults.impairments()
        fabric = FabricSpec(
            program=self.program,
            lanes=self.lanes,
            replace_program=self.switches.replace_program,
            lease_s=self.switches.lease,
            attached=self.switches.attachment(self.tls, cluster=cluster),
            p4runtime=self.switches.listen_address(),
            tree=fan_outs,
            transit=self.switches.transit_switches(),
            impairments=impairments,
            link_impairments=self.faults.link_impairments() if fan_outs else "",
            seed=self.faults.seed,
            captures=captures,
            port_kind=self.switches.port_kind,
        )
        refuse(
            fabric.attached and captures,
            "--pcap is for switches that this command starts: give --pcap to 'ina switch'",
        )
        refuse(fabric.attached and impairments, LINK_FAULTS)
        return fabric


def specs_of_file(memory: MemoryOptions, entries: Sequence[Job], *, shared: bool) -> list[LaunchSpec]:
    """Return a `LaunchSpec` for each job of a job file; options that were given replace the file's values.

    With `shared`, ``--slots`` is the number of slots that jobs share. A job for which the file gives a number
    of slots gets exclusive slots instead. The regions of these jobs follow the shared slots, one after the
    other.

    Without `shared`, a job for which only the window is given gets twice as many slots as packets in the
    window. ``--slots`` replaces the windows in the file, too: each window is then half the number of slots.
    """
    if not shared:
        return [LaunchSpec(job=_exclusive(entry, memory)) for entry in entries]
    specs = []
    first_own = memory.slots or 0
    for entry in map(replace(memory, slots=None).of, entries):
        if entry.slots is None:
            specs.append(LaunchSpec(job=replace(entry, slots=memory.slots)))
        else:
            specs.append(LaunchSpec(job=entry, first_slot=first_own))
            first_own += entry.slots
    return specs


def _exclusive(entry: Job, memory: MemoryOptions) -> Job:
    job = memory.of(entry)
    window = job.window if memory.slots is None else None
    return replace(job, window=window, slots=2 * window if job.slots is None and window else job.slots)


def begin_log(path: Path) -> Path:
    """Create the log file of a run, or empty an existing one; return its absolute path.

    Workers in any folder can open that path. Raises Failure if the file cannot be written, or is not a
    regular file, to which several workers could not append.
    """
    with failing_at(f"--log {path}", OSError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
    try:
        refuse(
            not stat.S_ISREG(os.fstat(file).st_mode),
            f"--log {path}: not a regular file: several workers cannot append to it",
        )
        os.ftruncate(file, 0)
    finally:
        os.close(file)
    return path.absolute()


def check_memory(memory: MemoryOptions, specs: Sequence[LaunchSpec], offers: SwitchInfo) -> None:
    """Raise Failure if an option needs a feature that the switches' program lacks.

    Also raise Failure if a job with exclusive slots has fewer than 2 of them.
    """
    option = "--preempt" if memory.preempt else f"--window {memory.window}"
    refuse(
        not offers.shared and (memory.preempt or memory.window),
        f"{option}: {offers.title} gives each job slots of its own; want a program with shared slots, "
        "such as --program shared",
    )
    check_preempt(memory.preempt, offers, memory.priority)
    for spec in specs:
        if not offers.shared and spec.job.slots is not None and spec.job.slots < 2:
            raise Failure(
                f"{_named(spec)}{plural(spec.job.slots, 'slot')}: an exclusive job needs at least 2",
                exit_code=USAGE,
            )


def check_preempt(preempt: bool | None, offers: SwitchInfo, priority: int | None = None) -> None:
    """Raise Failure if preemption or a priority is requested, and the program does not offer it."""
    if (preempt or priority is not None) and Feature.PREEMPTION in offers.lacks:
        option = "--preempt" if preempt else f"--priority {priority}"
        raise Failure(
            f"{option}: {offers.title} has no priorities: it lacks {offers.lacks[Feature.PREEMPTION]}; want "
            "a program with priorities, such as --program shared",
            exit_code=USAGE,
        )


def check(fabric: FabricSpec, specs: Sequence[LaunchSpec]) -> None:
    """Raise Failure for jobs that no switch could serve; ConfigError for unusable congestion rules."""
    for spec in specs:
        refuse(
            spec.job.workers < 1 or (not fabric.several and spec.children > MAX_CHILDREN),
            f"{_named(spec)}{spec.children} workers: want 1 to {MAX_CHILDREN} per switch, the width of "
            "its bitmap; --tree allows more",
        )
        find(spec.job.congestion).make()  # report an error in a file once, before anything starts


def _named(spec: LaunchSpec) -> str:
    return f"job {spec.name!r}: " if spec.name else ""


def parse_tree(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as ``2x4``: children per switch, level by level, hosts last.

    Raises Failure.
    """
    parts = text.split("x")
    refuse(
        not all(part.isascii() and part.isdecimal() and 1 <= int(part) <= MAX_CHILDREN for part in parts),
        f"--tree {text!r}: want numbers from 1 to {MAX_CHILDREN} joined by x, such as 2x4 or 2x2x2",
    )
    return tuple(map(int, parts))


def _base(option: str, text: str | None) -> tuple[str, int] | None:
    return None if text is None else options.parse_address(option, text)
