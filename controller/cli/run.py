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
from controller.cli.spec import SHARED, ClusterSpec, JobSpec

EPILOG = """Examples:

  ina run -np 4 -- python examples/digits.py

  ina run -np 4 --loss 0.05 --seed 7 -- python examples/digits.py

  ina run --program shared --preempt --slots 64 --jobs examples/three_jobs.toml

  ina run --program shared --tree 2x4 --link-loss 0.01 -- python examples/digits.py

  ina run -np 2 --switch grpc://127.0.0.1:9559 --json -- python train.py
"""


MEMORY = "Switch memory and windows"
SWITCHES = "Switches"


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
        bool,
        typer.Option(
            "--preempt", rich_help_panel=MEMORY, help="Let packets take slots from those of lower priority."
        ),
    ] = False,
    congestion: Annotated[
        Congestion, typer.Option(rich_help_panel=MEMORY, help="How workers pace themselves.")
    ] = Congestion.FIXED,
    numbers: Annotated[
        Numbers,
        typer.Option(
            rich_help_panel=MEMORY,
            help="How float32 travels: with an exponent per packet, or at a fixed scale.",
        ),
    ] = Numbers.EXPONENT,
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
            rich_help_panel=SWITCHES, help="'embedded' starts one; grpc://host:port uses one that runs."
        ),
    ] = "embedded",
    udp_base: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            rich_help_panel=SWITCHES,
            help="With grpc://: port p of that switch is this UDP port plus p.",
        ),
    ] = "127.0.0.1:47000",
    ports: Annotated[
        str,
        typer.Option(
            metavar="A-B,C",
            rich_help_panel=SWITCHES,
            help="With grpc://: the ports of that switch to choose from.",
        ),
    ] = "1-255",
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
    down again. A job that fails leaves the others alone; the exit status is that of the
    first worker that failed.
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
    if program != SHARED and (preempt or window):
        raise Failure(f"--preempt and --window are for --program {SHARED}", exit_code=USAGE)
    cluster = ClusterSpec(
        program=program,
        lanes=lanes,
        switch=switch,
        udp_base=udp_base,
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
        slots=slots,
        window=window,
        preempt=preempt,
        congestion=congestion.value,
        numbers=numbers.value,
        timeout_s=timeout,
        straggler_timeout_s=max(timeout, straggler_timeout),
    )
    if jobs is None:
        specs = [_only_job(common, workers, fan_outs)]
    else:
        if command or workers is not None:
            raise Failure("--jobs FILE says what to run: leave -np and the command out", exit_code=USAGE)
        specs = _of_file(common, load_jobs(jobs, require=["command"]), shared=cluster.shared)
    _check(cluster, specs)
    execute(cluster, specs, as_json=json)


def _only_job(common: JobSpec, workers: int | None, fan_outs: tuple[int, ...]) -> JobSpec:
    if not common.command:
        raise Failure("nothing to run: give -- COMMAND..., or --jobs FILE", exit_code=USAGE)
    if workers is None:
        workers = math.prod(fan_outs)  # of nothing, 1
    return replace(common, workers=workers)


def _of_file(common: JobSpec, entries: Sequence[JobEntry], *, shared: bool) -> list[JobSpec]:
    """Return the jobs of a file; what it does not say is as the options say.

    Of a shared array, jobs with slots of their own get these one after the other, behind those of all. An
    exclusive job's window is half its slots, whichever of the two the file gives.
    """
    specs = []
    first_own = common.slots or 0
    for entry in entries:
        slots = entry.slots
        if slots is None and entry.window and not shared:
            slots = 2 * entry.window
        own = slots is not None
        specs.append(
            replace(
                common,
                name=entry.name,
                command=entry.command or (),
                workers=entry.workers,
                slots=slots if own else common.slots,
                first_slot=first_own if own else 0,
                window=entry.window or common.window,
                preempt=entry.preempt or common.preempt,
                congestion=common.congestion if entry.congestion == "fixed" else entry.congestion,
                priority=entry.priority,
                numbers=common.numbers if entry.numbers == "exponent" else entry.numbers,
                start_s=entry.start_s,
            )
        )
        first_own += entry.slots or 0
    return specs


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
