"""``ina sim``: the jobs of a job file on a network in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.switches.model import SwitchInfo
from controller.vocabulary import BadSpec, Job, Link, Topology, place
from controller.vocabulary.slots import MAX_WINDOW
from ina.cli import job_files, options, sim_report
from ina.cli.errors import USAGE, Failure
from ina.cli.output import Bar
from ina.cli.plain import count, seconds
from ina.cli.run_options import check_preempt, parse_tree
from ina.runtime.job_file import Overrides

if TYPE_CHECKING:  # other commands need none of it
    from bmv2_topos.testbeds.virtual import Placement, Recorder

EPILOG = """Examples:

  ina sim examples/sim.toml

  ina sim examples/sim.toml --program exclusive --slots 512

  ina sim examples/sim.toml --program mine/shared.p4

  ina sim examples/sim.toml --tree 2x4 --link-loss 0.01 --seed 7

  ina sim examples/three_jobs.toml --slots 16 --loss 0.01 --explain

  ina sim examples/three_jobs.toml --slots 16 --pcap captures && ina trace captures --slots

  ina sim examples/sim.toml --slots 128 --plot sim.png --json
"""


MEMORY = "Switch memory and windows"
NETWORK = "Network"


def sim(
    jobs: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Read the jobs from this TOML file, as 'ina run --jobs' does."),
    ],
    program: Annotated[
        str,
        typer.Option(
            help=f"{options.PROGRAM} Defaults to shared with 64 lanes, because simulations are mostly of "
            "jobs that compete for slots; 'ina run' defaults to exclusive with 256 lanes, the fastest "
            "in software."
        ),
    ] = "shared",
    lanes: options.Lanes = 64,
    iterations: Annotated[
        int | None,
        typer.Option(min=1, help="Run this many iterations of every job. Default: as in the file."),
    ] = None,
    slots: Annotated[
        int,
        typer.Option(
            min=0,
            rich_help_panel=MEMORY,
            help="Give every switch this many aggregator slots, for all jobs together.",
        ),
    ] = 8192,
    window: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_WINDOW,
            rich_help_panel=MEMORY,
            help="Keep at most this many packets in flight per worker. Default: as in the file, else 128.",
        ),
    ] = None,
    preempt: Annotated[
        bool | None,
        typer.Option(
            "--preempt/--no-preempt",
            rich_help_panel=MEMORY,
            help="Let packets take slots from packets of lower priority, if jobs share slots. "
            "Default: as in the file, else no.",
        ),
    ] = None,
    congestion: options.Congestion = None,
    tree: Annotated[
        str | None,
        typer.Option(
            metavar="NxN…",
            rich_help_panel=NETWORK,
            help="Simulate a tree of switches with this many children per switch, level by level, "
            "for one job; the last number counts machines: 2x4. Default: one switch.",
        ),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=NETWORK,
            help="Read the network from this file, instead of --tree; each server carries one worker.",
        ),
    ] = None,
    transit: Annotated[
        str,
        typer.Option(
            metavar="SWITCH,…",
            rich_help_panel=NETWORK,
            help="Let these switches of --tree (s2, s3, …) forward without aggregating.",
        ),
    ] = "",
    loss: Annotated[
        float,
        typer.Option(rich_help_panel=NETWORK, help="Lose each packet on a link with this probability."),
    ] = 0.0,
    link_loss: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=NETWORK,
            help="Lose each packet between switches with this probability. Default: as --loss.",
        ),
    ] = None,
    rate_bps: Annotated[
        float,
        typer.Option(
            "--rate",
            metavar="BPS",
            show_default="10e9",
            rich_help_panel=NETWORK,
            help="Limit every link to this rate, in bits per second; 0: unlimited.",
        ),
    ] = 10e9,
    delay: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=NETWORK,
            help="Delay every packet on a link by this many seconds, each way.",
        ),
    ] = 2e-6,
    queue: Annotated[
        int,
        typer.Option(
            metavar="PACKETS",
            rich_help_panel=NETWORK,
            help="Queue at most this many packets at each switch port; drop further ones.",
        ),
    ] = 2048,
    coalesce_us: Annotated[
        int,
        typer.Option(
            "--coalesce",
            min=1,
            metavar="US",
            rich_help_panel=NETWORK,
            help="Let hosts process arrived packets every so many microseconds.",
        ),
    ] = 5,
    seed: Annotated[
        int, typer.Option(help="Seed the random numbers; the same seed gives the same result.")
    ] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw iteration times and slots in use: .png, .svg or .pdf."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Explain what made each iteration slow: its critical path, by cause."),
    ] = False,
    pcap: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Capture what passes hosts and switch ports into this directory, for 'ina trace'.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Simulate jobs packet by packet, in virtual time, with the real switch program and host library.

    Links, queues and computing are simulated; the switch program, the workers' windows and the fallback
    servers are the real ones. Every worker has its own host. Every sum that a worker gets is compared with
    the exact sum; a wrong one ends the command with status 1.
    """
    # Loaded here, for other commands need none of it.
    from bmv2_topos.testbeds.virtual import Recorder, TestbedError, VirtualSettings, VirtualTestbed, build

    overrides = Overrides(iterations=iterations, window=window, preempt=preempt, congestion=congestion)
    entries = [overrides.of(entry) for entry in job_files.jobs(jobs, "sim")]
    if plot is not None:
        _check_plot(plot)
    try:
        shape = None if tree is None else parse_tree(tree)
        link = Link("a", "b", rate_bps=rate_bps, delay_s=delay, queue_packets=queue, loss=loss)
        trunk = Link("a", "b", rate_bps, delay, queue, loss if link_loss is None else link_loss)
        settings = VirtualSettings(
            program=program, lanes=lanes, slots=slots, seed=seed, coalesce_us=coalesce_us
        )
        check_preempt(preempt, settings.offers)
        servers = settings.shares
        if cluster is None:
            network, placements = build(entries, shape, servers=servers, link=link, trunk=trunk)
        else:
            network, placements = _on_cluster(cluster, entries, shape, settings.offers)
        network = _without_sums(network, [name for name in transit.split(",") if name])
        recorder = Recorder() if explain or pcap is not None else None
        testbed = VirtualTestbed(network, entries, placements, settings, recorder=recorder)
    except (BadSpec, TestbedError) as error:
        raise Failure(str(error), exit_code=USAGE) from error
    try:
        with Bar() as bar:
            report = testbed.run(
                lambda time_s, done, total: bar.show(
                    done / total, f"{count(done)} of {count(total)} iterations, {seconds(time_s)}"
                )
            )
    except TestbedError as error:
        raise Failure(str(error)) from error
    if plot is not None:
        from bmv2_topos.plots import draw_report

        draw_report(report, plot)
    if recorder is not None and pcap is not None:
        _write(recorder, pcap)
    verdicts = recorder.explain() if recorder is not None and explain else []
    if json:
        sim_report.result(report, verdicts).print_json(
            unused_keys=job_files.unused_keys("sim", jobs, cluster)
        )
        return
    sim_report.show(report)
    if explain:
        sim_report.show_verdicts(verdicts)


def _on_cluster(
    cluster: Path, jobs: Sequence[Job], shape: Sequence[int] | None, offers: SwitchInfo
) -> tuple[Topology, tuple[Placement, ...]]:
    """Return the topology of a file with the jobs' places on it. Raises Failure or BadSpec."""
    from bmv2_topos.testbeds.virtual import Placement

    if shape is not None:
        raise Failure("--cluster and --tree are mutually exclusive", exit_code=USAGE)
    network = job_files.topology(str(cluster), "sim")
    fallback = None
    if offers.shared:
        at_root = [name for name in network.servers_for("fallback") if network.rack_of[name] == network.root]
        if not at_root:
            raise Failure(
                f'--cluster {cluster}: no server with role = "fallback" at the root {network.root!r}, which'
                f" {offers.title} needs, for its jobs share slots; or give --program exclusive",
                exit_code=USAGE,
            )
        fallback = at_root[0]
    hosts = place(network, [job.workers for job in jobs])
    return network, tuple(Placement(each, fallback) for each in hosts)


def _write(recorder: Recorder, folder: Path) -> None:
    try:
        recorder.write(folder)
    except OSError as error:
        raise Failure(f"--pcap {folder}: {error.strerror}") from error


def _without_sums(network: Topology, transit: Sequence[str]) -> Topology:
    """Return the network with switches that only pass packets on. Raises Failure."""
    known = [switch.name for switch in network.switches]
    for name in transit:
        if name not in known:
            raise Failure(f"--transit {name}: want some of {', '.join(known)}", exit_code=USAGE)
    switches = (replace(switch, slots=0) if switch.name in transit else switch for switch in network.switches)
    return replace(network, switches=tuple(switches))


def _check_plot(plot: Path) -> None:
    """Refuse before the run what would fail after it."""
    from controller.figures import FORMATS, PlotsMissing, check

    if plot.suffix not in FORMATS:
        raise Failure(f"--plot {plot}: want a name that ends in {', '.join(FORMATS)}", exit_code=USAGE)
    try:
        check()
    except PlotsMissing as error:
        raise Failure(f"--plot: {error}") from error
