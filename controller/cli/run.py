"""``ina run``: training jobs, their gradients summed in switches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bmv2_topos import JobEntry, load_jobs
from controller.cli import options
from controller.cli.errors import USAGE, Failure
from controller.cli.execute import execute
from controller.cli.pcap_options import PcapOptions
from controller.cli.run_options import FaultOptions, MemoryOptions, SwitchOptions
from controller.runtime.job_file import Overrides, spec_of, specs_of_file
from controller.runtime.run_log import begin_log
from controller.runtime.spec import ATP, NAMELESS, SHARED, Captures, FabricSpec, LaunchSpec
from controller.runtime.topology import MAX_CHILDREN

EPILOG = """Examples:

  ina run -np 4 -- python examples/digits.py

  ina run -np 4 --loss 0.05 --seed 7 -- python examples/digits.py

  ina run --program shared --preempt --slots 64 --jobs examples/three_jobs.toml

  ina run --program shared --tree 2x4 --link-loss 0.01 -- python examples/digits.py

  ina run -np 2 --program shared --loss 0.01 --pcap captures -- python examples/digits.py

  ina run -np 2 --switch grpc://127.0.0.1:9559 --json -- python train.py

  ina run -np 2 --switch grpc://switch.lab:9559 --tls-ca ca.pem -- python train.py
"""


def run(
    *,
    command: Annotated[
        list[str] | None, typer.Argument(help="The worker program, after --.", metavar="-- COMMAND")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            *options.WORKERS, help="Number of workers, 1 to 32 per switch; one, or all machines of --tree."
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
    memory: MemoryOptions,
    switches: SwitchOptions,
    tls: options.TlsOptions,
    faults: FaultOptions,
    captures: PcapOptions,
) -> None:
    """Run training jobs whose gradients are summed inside P4 switches.

    Starts (or attaches to) the switches, and a fallback server for the shared program; admits the jobs,
    starts the workers with their place in the job in the environment variable INA_JOB, and takes everything
    down again. A job that fails leaves the others alone; all that is left of an interrupted one is
    its summary so far. What the file of --jobs says
    of a job holds, except where an option is given.
    """
    fan_outs = switches.fan_outs
    if faults.link_loss is not None and not fan_outs:
        raise Failure("--link-loss is for links between switches: give --tree too", exit_code=USAGE)
    if program not in (SHARED, ATP) and (memory.preempt or memory.window):
        raise Failure(f"--preempt and --window are for --program {SHARED}", exit_code=USAGE)
    if program == ATP and memory.preempt:
        raise Failure(f"--preempt: {ATP} has no priorities; use --program {SHARED}", exit_code=USAGE)
    impairments = faults.impairments()
    fabric = FabricSpec(
        program=program,
        lanes=lanes,
        attached=switches.attachment(tls),
        p4runtime=switches.listen_address(),
        tree=fan_outs,
        transit=switches.transit_switches(),
        impairments=impairments,
        link_impairments=faults.link_impairments() if fan_outs else "",
        seed=faults.seed,
        captures=None if captures.pcap is None else _captures(captures),
    )
    if fabric.attached and captures.pcap:
        raise Failure("--pcap is for switches that are started: give it to 'ina switch'", exit_code=USAGE)
    if fabric.attached and impairments:
        raise Failure("impairments belong to the switch: give them to 'ina switch'", exit_code=USAGE)
    common = LaunchSpec(
        command=command or [],
        workers=0,
        timeout_s=timeout,
        straggler_timeout_s=max(timeout, straggler_timeout),
    )
    overrides = memory.overrides()
    if jobs is None:
        specs = [_only_job(common, overrides, workers, fan_outs)]
    else:
        if command or workers is not None:
            raise Failure("--jobs FILE says what to run: leave -np and the command out", exit_code=USAGE)
        specs = specs_of_file(common, overrides, load_jobs(jobs, require=["command"]), shared=fabric.shared)
    _check(fabric, specs)
    if log is not None:
        place = str(begin_log(log))
        specs = [replace(spec, log=place) for spec in specs]
    execute(fabric, specs, switch=switches.switch, as_json=json)


def _captures(captures: PcapOptions) -> Captures:
    """Make the folder now: a bad one is one error, before anything starts. Raises Failure."""
    assert captures.pcap is not None
    try:
        captures.pcap.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"--pcap {captures.pcap}: {error.strerror}") from error
    return Captures(captures.pcap.absolute(), captures.limit(), captures.pcap_snap)


def _only_job(
    common: LaunchSpec, overrides: Overrides, workers: int | None, fan_outs: tuple[int, ...]
) -> LaunchSpec:
    if not common.command:
        raise Failure("nothing to run: give -- COMMAND..., or --jobs FILE", exit_code=USAGE)
    if workers is None:
        workers = math.prod(fan_outs)  # of nothing, 1
    entry = overrides.of(JobEntry(name=NAMELESS, workers=workers))
    return spec_of(common, entry, slots=entry.slots)


def _check(fabric: FabricSpec, specs: Sequence[LaunchSpec]) -> None:
    for spec in specs:
        what = f"job {spec.name!r}: " if spec.name else ""
        if spec.workers < 1 or (not fabric.tree and spec.workers > MAX_CHILDREN):
            raise Failure(
                f"{what}{spec.workers} workers: one switch sums 1 to {MAX_CHILDREN} children, the"
                " width of its bitmap; --tree has more",
                exit_code=USAGE,
            )
        if fabric.shared:
            continue
        if spec.slots is not None and spec.slots < 2:
            raise Failure(f"{what}{spec.slots} slots: an exclusive job needs 2", exit_code=USAGE)
