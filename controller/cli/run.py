"""``ina run``: training jobs, their gradients summed in switches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bmv2_topos import JobEntry, load_jobs
from bmv2_topos.jobfile import MAX_WINDOW
from controller.cli import layout, options
from controller.cli.errors import USAGE, Failure
from controller.cli.execute import execute
from controller.cli.overrides import Overrides, spec_of, specs_of_file
from controller.cli.run_log import begin_log
from controller.cli.spec import ATP, EMBEDDED, NAMELESS, PRIVATE, SHARED, ClusterSpec, JobSpec

EPILOG = """Examples:

  ina run -np 4 -- python examples/digits.py

  ina run -np 4 --loss 0.05 --seed 7 -- python examples/digits.py

  ina run --program shared --preempt --slots 64 --jobs examples/three_jobs.toml

  ina run --program shared --tree 2x4 --link-loss 0.01 -- python examples/digits.py

  ina run -np 2 --switch grpc://127.0.0.1:9559 --json -- python train.py

  ina run -np 2 --switch grpc://switch.lab:9559 --tls-ca ca.pem -- python train.py
"""


MEMORY = "Switch memory and windows"
SWITCHES = "Switches"
MAX_LEASE_S = 366 * 86400


class Congestion(StrEnum):
    """How workers pace themselves (hostlib/core/congestion.py)."""

    FIXED = "fixed"
    AIMD = "aimd"
    A2TP = "a2tp"


class Numbers(StrEnum):
    """How float32 travels (docs/protocol.md, Numbers)."""

    EXPONENT = "exponent"
    FIXED = "fixed"


def run(
    command: Annotated[
        list[str] | None, typer.Argument(help="The worker program, after --.", metavar="-- COMMAND")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "-np", "--workers", help="Number of workers, 1 to 32 per switch; one, or all machines of --tree."
        ),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead of a command: run the jobs of a TOML file at once."),
    ] = None,
    program: options.Program = "exclusive",
    lanes: options.Lanes = 256,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Silence after which a worker gives up.")
    ] = 8.0,
    straggler_timeout: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="SECONDS", help="The same for a rank that is known to live, only slow."
        ),
    ] = 600.0,
    json: options.Json = False,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a line of JSON about each collective of each worker, anew each run."
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=0,
            rich_help_panel=MEMORY,
            help="Aggregator slots: of each job (exclusive; 1024 unless given), or of all together (shared; "
            "all that there are unless given; 0: everything goes to the fallback server).",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_WINDOW,
            rich_help_panel=MEMORY,
            help="Packets in flight per worker at most; half the slots, or 128 if shared.",
        ),
    ] = None,
    preempt: Annotated[
        bool | None,
        typer.Option(
            "--preempt/--no-preempt",
            rich_help_panel=MEMORY,
            help="Let packets take slots from those of lower priority; no unless given.",
        ),
    ] = None,
    congestion: Annotated[
        Congestion | None,
        typer.Option(rich_help_panel=MEMORY, help="How workers pace themselves; fixed unless given."),
    ] = None,
    numbers: Annotated[
        Numbers | None,
        typer.Option(
            rich_help_panel=MEMORY,
            help="How float32 travels: with an exponent per packet (unless given), or at a fixed scale.",
        ),
    ] = None,
    tree: Annotated[
        str | None,
        typer.Option(
            metavar="NxN…",
            rich_help_panel=SWITCHES,
            help="Children per switch, level by level, machines last: 2x4, 2x2x2.",
        ),
    ] = None,
    transit: Annotated[
        str,
        typer.Option(
            metavar="SWITCH,…",
            rich_help_panel=SWITCHES,
            help="Switches of --tree (s2, s3, …) that do not add.",
        ),
    ] = "",
    switch: Annotated[
        str,
        typer.Option(
            rich_help_panel=SWITCHES,
            help="'embedded' starts one; grpc://host:port, or unix:PATH, uses one that runs.",
        ),
    ] = EMBEDDED,
    p4runtime: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            rich_help_panel=SWITCHES,
            help="Let others control the switch that is started, at this port (0: any; further switches "
            "of --tree: the next ones). Unless given nobody else can.",
        ),
    ] = None,
    replace_program: Annotated[
        bool,
        typer.Option(
            "--replace-program",
            rich_help_panel=SWITCHES,
            help="With a switch that runs: load the program even if another one runs; its tables are lost.",
        ),
    ] = False,
    udp_base: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            rich_help_panel=SWITCHES,
            help="With a switch that runs: port p of that switch is this UDP port plus p.",
        ),
    ] = "127.0.0.1:47000",
    worker_base: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            rich_help_panel=SWITCHES,
            help="With a switch that runs: whoever is at port p of that switch has this UDP port plus p.",
        ),
    ] = "127.0.0.1:48000",
    ports: Annotated[
        str,
        typer.Option(
            metavar="A-B,C",
            rich_help_panel=SWITCHES,
            help="With a switch that runs: the ports of that switch to choose from.",
        ),
    ] = "1-255",
    lease: Annotated[
        float,
        typer.Option(
            min=1,
            max=MAX_LEASE_S,
            metavar="SECONDS",
            rich_help_panel=SWITCHES,
            help="With a switch that runs: how long jobs stay admitted once this command is killed.",
        ),
    ] = 60.0,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    loss: options.Loss = 0.0,
    duplicate: options.Duplicate = 0.0,
    reorder: options.Reorder = 0.0,
    corrupt: options.Corrupt = 0.0,
    delay: options.Delay = 0.0,
    rate_bps: options.Rate = 0.0,
    queue: options.Queue = 64,
    link_loss: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=options.FAULTS,
            help="The same as --loss between switches; as --loss unless given.",
        ),
    ] = None,
    seed: options.Seed = 0,
) -> None:
    """Run training jobs whose gradients are summed inside P4 switches.

    Starts (or attaches to) the switches, and a fallback server for the shared program; admits the jobs,
    starts the workers with their place in the job in the environment variable INA_JOB, and takes everything
    down again. A job that fails leaves the others alone; all that is left of an interrupted one is
    its summary so far. What the file of --jobs says
    of a job holds, except where an option is given.
    """

    def impairments(loss: float) -> str:
        return options.impairments(
            loss=loss,
            duplicate=duplicate,
            reorder=reorder,
            corrupt=corrupt,
            delay=delay,
            rate=rate_bps,
            queue=queue,
        )

    fan_outs = layout.parse_tree(tree) if tree else ()
    if link_loss is not None:
        if not tree:
            raise Failure("--link-loss is for links between switches: give --tree too", exit_code=USAGE)
        options.check_chance("--link-loss", link_loss)
    if program not in (SHARED, ATP) and (preempt or window):
        raise Failure(f"--preempt and --window are for --program {SHARED}", exit_code=USAGE)
    if program == ATP and preempt:
        raise Failure(f"--preempt: {ATP} has no priorities; use --program {SHARED}", exit_code=USAGE)
    cluster = ClusterSpec(
        program=program,
        lanes=lanes,
        switch=switch,
        tls=options.client_tls(tls_ca, tls_cert, tls_key, switch),
        replace_program=replace_program,
        lease_s=None if switch == EMBEDDED else lease,
        p4runtime=PRIVATE if p4runtime is None else _p4runtime(p4runtime),
        udp_base=udp_base,
        worker_base=worker_base,
        ports=options.parse_numbers("--ports", ports),
        tree=fan_outs,
        transit=frozenset(name for name in transit.split(",") if name),
        impairments=impairments(loss),
        link_impairments=impairments(loss if link_loss is None else link_loss) if tree else "",
        seed=seed,
    )
    common = JobSpec(
        command=command or [],
        workers=0,
        timeout_s=timeout,
        straggler_timeout_s=max(timeout, straggler_timeout),
    )
    overrides = Overrides(
        slots=slots,
        window=window,
        preempt=preempt,
        congestion=congestion and congestion.value,
        numbers=numbers and numbers.value,
    )
    if jobs is None:
        specs = [_only_job(common, overrides, workers, fan_outs)]
    else:
        if command or workers is not None:
            raise Failure("--jobs FILE says what to run: leave -np and the command out", exit_code=USAGE)
        specs = specs_of_file(common, overrides, load_jobs(jobs, require=["command"]), shared=cluster.shared)
    _check_switch(cluster)
    _check(cluster, specs)
    if log is not None:
        place = str(begin_log(log))
        specs = [replace(spec, log=place) for spec in specs]
    execute(cluster, specs, as_json=json)


def _p4runtime(text: str) -> str:
    """Complete ``[host:]port``. Raises Failure."""
    address = text if ":" in text else f"127.0.0.1:{text}"
    options.parse_address("--p4runtime", address)
    return address


def _check_switch(cluster: ClusterSpec) -> None:
    """Refuse options that belong to the other kind of switch."""
    if cluster.switch != EMBEDDED:
        if cluster.p4runtime != PRIVATE:
            raise Failure("--p4runtime is for a switch that is started: leave --switch out", exit_code=USAGE)
        return
    for option, given in (("--tls-ca", cluster.tls), ("--replace-program", cluster.replace_program)):
        if given:
            raise Failure(f"{option} is for a switch that runs: give --switch too", exit_code=USAGE)


def _only_job(
    common: JobSpec, overrides: Overrides, workers: int | None, fan_outs: tuple[int, ...]
) -> JobSpec:
    if not common.command:
        raise Failure("nothing to run: give -- COMMAND..., or --jobs FILE", exit_code=USAGE)
    if workers is None:
        workers = math.prod(fan_outs)  # of nothing, 1
    entry = overrides.of(JobEntry(name=NAMELESS, workers=workers))
    return spec_of(common, entry, slots=entry.slots)


def _check(cluster: ClusterSpec, specs: Sequence[JobSpec]) -> None:
    for spec in specs:
        what = f"job {spec.name!r}: " if spec.name else ""
        if spec.workers < 1 or (not cluster.tree and spec.workers > layout.MAX_CHILDREN):
            raise Failure(
                f"{what}{spec.workers} workers: one switch sums 1 to {layout.MAX_CHILDREN} children, the"
                " width of its bitmap; --tree has more",
                exit_code=USAGE,
            )
        if cluster.shared:
            continue
        if spec.slots is not None and spec.slots < 2:
            raise Failure(f"{what}{spec.slots} slots: an exclusive job needs 2", exit_code=USAGE)
