"""``ina sim``: simulates the jobs of a file on a network, packet by packet, in virtual time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from controller.vocabulary import Topology, documents, named
from controller.vocabulary.job import MAX_WINDOW
from ina.cli import job_files, options, sim_report
from ina.cli.command import FAILED, Declared, Reply, count, failing_at, refuse, seconds
from ina.cli.output import Bars, check_plots
from ina.cli.run_options import check_preempt, parse_tree

if TYPE_CHECKING:  # other commands need none of it
    from bmv2_topos.harness.simulation import Simulation
    from bmv2_topos.testbeds.virtual import Recorder


MEMORY = "Switch memory and windows"
NETWORK = "Network"
POLICIES = "Allocation by policies"
MANY = "Several runs"
KEYS = (
    *("program", "lanes", "slots", "iterations", "window", "preempt", "congestion", "tree", "cluster"),
    *("placement", "routing", "memory", "loss", "link-loss", "rate", "delay", "queue", "coalesce"),
    *("flows", "flow-rate"),
)
"""Keys for ``--sweep``, as in `bmv2_topos.harness.simulation.OPTIONS`, which takes long to import."""
OWN = "or one of your own: path.py:NAME, or a name that an installed package offers."


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """Options with the names of fields of `bmv2_topos.harness.simulation.Simulation`."""

    program: Annotated[
        str,
        Declared(
            help=f"{options.PROGRAM} Defaults to shared with 64 lanes, because simulations are mostly of "
            "jobs that compete for slots; 'ina run' defaults to exclusive with 256 lanes, the fastest "
            "in software."
        ),
    ] = "shared"
    lanes: options.Lanes = 64
    iterations: Annotated[
        int | None,
        Declared(min=1, help="Run this many iterations of every job. Default: as in the file."),
    ] = None
    slots: Annotated[
        int,
        Declared(
            min=0,
            rich_help_panel=MEMORY,
            help="Give every switch this many aggregator slots, for all jobs together.",
        ),
    ] = 8192
    window: Annotated[
        int | None,
        Declared(
            min=1,
            max=MAX_WINDOW,
            rich_help_panel=MEMORY,
            help="Keep at most this many packets in flight per worker. Default: as in the file, else 128.",
        ),
    ] = None
    preempt: Annotated[
        bool | None,
        Declared(
            "--preempt/--no-preempt",
            rich_help_panel=MEMORY,
            help="Allow packets to take lower-priority packets' slots, if jobs share slots. "
            "Default: as in the file, else no.",
        ),
    ] = None
    congestion: options.Congestion = None
    tree: Annotated[
        str | None,
        Declared(
            metavar="NxN…",
            rich_help_panel=NETWORK,
            help="Simulate a tree of switches with this many children per switch, level by level, "
            "for one job; the last number counts machines: 2x4. Default: one switch.",
        ),
    ] = None
    placement: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            rich_help_panel=POLICIES,
            help="Place jobs on --cluster by this policy: netpack, random, gpu-balance, "
            f"least-fragmentation, locality, locality-fast-links, optimus; {OWN} Default: netpack if "
            "--routing or --memory is given, else hosts in turn.",
        ),
    ] = None
    routing: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            rich_help_panel=POLICIES,
            help="Choose trees by this policy: shortest-path, tor-only, ecmp, ecmp-everywhere, grid; "
            f"{OWN} Default: shortest-path.",
        ),
    ] = None
    memory: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            rich_help_panel=POLICIES,
            help="Divide slots by this policy: shared, static, deadline, deadline-lazy, earliest, "
            f"preemptive; {OWN} Default: shared, but static where jobs have slots of "
            "their own.",
        ),
    ] = None
    loss: Annotated[
        float,
        Declared(rich_help_panel=NETWORK, help="Lose each packet on a link with this probability."),
    ] = 0.0
    link_loss: Annotated[
        float | None,
        Declared(
            rich_help_panel=NETWORK,
            help="Lose each packet between switches with this probability. Default: as --loss.",
        ),
    ] = None
    rate_bps: Annotated[
        float,
        Declared(
            "--rate",
            metavar="BPS",
            show_default="10e9",
            rich_help_panel=NETWORK,
            help="Limit every link to this rate, in bits per second; 0: unlimited.",
        ),
    ] = 10e9
    delay_s: Annotated[
        float,
        Declared(
            "--delay",
            metavar="SECONDS",
            rich_help_panel=NETWORK,
            help="Delay every packet on a link by this many seconds, each way.",
        ),
    ] = 2e-6
    queue_packets: Annotated[
        int,
        Declared(
            "--queue",
            metavar="PACKETS",
            rich_help_panel=NETWORK,
            help="Queue at most this many packets at each switch port; drop further ones.",
        ),
    ] = 2048
    coalesce_us: Annotated[
        int,
        Declared(
            "--coalesce",
            min=1,
            metavar="US",
            rich_help_panel=NETWORK,
            help="Process arrived packets at hosts at this interval, in microseconds.",
        ),
    ] = 5
    flows: Annotated[
        int,
        Declared(
            min=0,
            metavar="N",
            rich_help_panel=NETWORK,
            help=options.FLOWS,
        ),
    ] = 0
    flow_rate_bps: Annotated[
        float,
        Declared(
            "--flow-rate",
            metavar="BPS",
            show_default="1e9",
            rich_help_panel=NETWORK,
            help="Send at this rate in each of --flows, in bits per second.",
        ),
    ] = 1e9
    seed: Annotated[
        int, Declared(min=0, help="Seed the random numbers; the same seed gives the same result.")
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSettings:
    """Options of 'ina sim': one simulation or several, and how their results are shown."""

    jobs: Annotated[
        Path,
        Declared(
            argument=True, metavar="FILE", help="Read the jobs from this file, as 'ina run --jobs' does."
        ),
    ]
    simulated: SimulationOptions
    cluster: Annotated[
        Path | None,
        Declared(
            parser=Path,  # the file need not exist: the value may name a topology
            metavar="FILE",
            rich_help_panel=NETWORK,
            help="Read the network from this file, instead of --tree, or name a topology of the testbeds, "
            "such as leaf-spine:2x4x8; each server carries one worker.",
        ),
    ] = None
    transit: Annotated[
        str,
        Declared(
            metavar="SWITCH,…",
            rich_help_panel=NETWORK,
            help="Forward without aggregating at these switches of --tree (s2, s3, …).",
        ),
    ] = ""
    seeds: Annotated[
        int | None,
        Declared(
            min=1,
            metavar="N",
            rich_help_panel=MANY,
            help="Run once for each of N seeds, from --seed on; print means, minima and maxima.",
        ),
    ] = None
    sweep: Annotated[
        list[str] | None,
        Declared(
            metavar="KEY=VALUE,…",
            rich_help_panel=MANY,
            help="Run with each of these values of an option: slots=16,64,256. Repeat to sweep several "
            f"options, in all combinations. Keys: {', '.join(KEYS)}.",
        ),
    ] = None
    processes: Annotated[
        int,
        Declared(min=0, rich_help_panel=MANY, help="Run this many simulations at a time; 0: one per core."),
    ] = 0
    plot: Annotated[
        Path | None,
        Declared(
            writable=True, metavar="FILE", help="Draw iteration times and slots in use: .png, .svg or .pdf."
        ),
    ] = None
    explain: Annotated[
        bool,
        Declared("--explain", help="Explain what made each iteration slow: its critical path, by cause."),
    ] = False
    pcap: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="DIR",
            help="Capture the packets at hosts and switch ports into this directory, for 'ina trace'.",
        ),
    ] = None

    def simulation(self) -> Simulation:
        """Return the simulation that the options describe. Raises Failure, BadSpec."""
        from bmv2_topos.harness.simulation import Simulation

        if self.simulated.tree is not None:
            parse_tree(self.simulated.tree)
        return Simulation(
            jobs=job_files.jobs(self.jobs, "sim"),
            cluster=None if self.cluster is None else _network(self.cluster),
            transit=tuple(name for name in self.transit.split(",") if name),
            **asdict(self.simulated),
        )


def sim(asked: SimSettings) -> Reply:
    """Simulate jobs packet by packet, in virtual time, with the real switch program and host library.

    Links, queues and computing are simulated; the switch program, the workers' windows and the fallback
    servers are the real code. Every worker has its own host, unless --placement, --routing or --memory names
    a policy. Every sum that a worker gets is compared with the exact sum; a wrong sum ends the command with
    status 1.

    Examples:
        ina sim examples/sim.toml

        ina sim examples/sim.toml --program exclusive --slots 512

        ina sim examples/sim.toml --program p4src/shared.p4

        ina sim examples/sim.toml --tree 2x4 --link-loss 0.01 --seed 7

        ina sim examples/three_jobs.toml --slots 16 --loss 0.01 --explain

        ina sim examples/three_jobs.toml --slots 16 --pcap captures && ina trace captures --slots

        ina sim examples/sim.toml --slots 128 --plot sim.png --json

        ina sim examples/three_jobs.toml --seeds 5 --sweep slots=16,64,256 --sweep congestion=fixed,aimd

        ina sim examples/three_jobs.toml --cluster leaf-spine:2x2x4 --flows 3 --flow-rate 2e9

        ina sim examples/windows/jobs.toml --cluster leaf-spine:2x4x4 --placement netpack --routing grid
    """
    # imported here: slow, and not needed for --help
    from bmv2_topos.testbeds.virtual import VirtualSettings

    check_plots("--plot", asked.plot)
    of = asked.simulated
    found = asked.simulation()
    settings = VirtualSettings(program=of.program, lanes=of.lanes, slots=of.slots)
    check_preempt(of.preempt, settings.offers)
    unused_keys = job_files.unused_keys("sim", asked.jobs, asked.cluster)
    if asked.seeds is None and not asked.sweep:
        return _run_one(found, asked, unused_keys)
    refuse(
        asked.plot is not None or asked.pcap is not None or asked.explain,
        "--plot, --pcap and --explain need a single run: leave --seeds and --sweep out",
    )
    return sim_report.swept(found, asked.sweep or [], asked.seeds or 1, asked.processes, unused_keys)


def _run_one(simulation: Simulation, settings: SimSettings, unused_keys: list[str]) -> Reply:
    from bmv2_topos.testbeds.virtual import Recorder

    recorder = Recorder() if settings.explain or settings.pcap is not None else None
    prepared = simulation.prepared(recorder)
    with Bars() as bar:
        report = prepared.run(
            lambda time_s, done, total: bar.show(
                done / total, f"{count(done)} of {count(total)} iterations, {seconds(time_s)}"
            )
        )
    if settings.plot is not None:
        from bmv2_topos.plots import draw_report

        draw_report(report, settings.plot)
    if recorder is not None and settings.pcap is not None:
        _write(recorder, settings.pcap)
    verdicts = recorder.explain() if recorder is not None and settings.explain else []
    parts = [*sim_report.parts(report)] + (sim_report.verdict_lines(verdicts) if settings.explain else [])
    return Reply(sim_report.result(report, verdicts, unused_keys), parts)


def _network(cluster: Path) -> Topology | str:
    """Return the topology of a file, or the checked name of a topology of the catalog.

    A topology of the catalog is made anew for each run.
    """
    if cluster.suffix in documents.FORMATS:
        return job_files.topology(str(cluster), "sim")
    named(str(cluster))
    return str(cluster)


def _write(recorder: Recorder, folder: Path) -> None:
    with failing_at(f"--pcap {folder}", OSError, exit_code=FAILED):
        recorder.write(folder)
