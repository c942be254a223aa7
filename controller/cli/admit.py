"""``ina admit``: a job's place on a switch, for workers that somebody else starts."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from controller.cli import options
from controller.cli.run_options import (
    FaultOptions,
    MemoryOptions,
    StragglerTimeout,
    SwitchOptions,
    Timeout,
    check,
    fabric_of,
    only_job,
)
from controller.runtime.metrics import metrics
from controller.runtime.served import serve
from controller.runtime.spec import LaunchSpec

EPILOG = """Examples:

  ina admit -np 4

  ina admit -np 4 --program shared --slots 256

  ina admit -np 4 --switch grpc://127.0.0.1:9559

Programs that use hostlib start it by themselves where torchrun, mpirun or srun has started them; INA_SWITCH
and INA_OPTIONS hold its options then.
"""


def admit(
    *,
    workers: Annotated[int, typer.Option(*options.WORKERS, help="Number of workers, 1 to 32.")],
    program: options.Program = "exclusive",
    lanes: options.Lanes = 256,
    timeout: Timeout = 8.0,
    straggler_timeout: StragglerTimeout = 600.0,
    memory: MemoryOptions,
    switches: SwitchOptions,
    tls: options.TlsOptions,
    faults: FaultOptions,
) -> None:
    """Admit a job whose workers somebody else starts: torchrun, mpirun, srun.

    Starts (or attaches to) the switches and admits the job, as `ina run` does. Then prints one line of JSON:
    an object whose "configs" holds for each rank what it must find in INA_JOB. They hold the job's token:
    keep them out of logs. Serves the job until all ranks have left, or until standard input ends before all
    have joined. The last line is its statistics.
    """
    fabric = fabric_of(program, lanes, memory, switches, tls, faults)
    common = LaunchSpec(
        command=[], workers=0, timeout_s=timeout, straggler_timeout_s=max(timeout, straggler_timeout)
    )
    spec = only_job(common, memory.overrides(), workers, fabric.tree)
    check(fabric, [spec])
    result = serve(fabric, spec, on_ready=_announce, starter_left=_input_ended)
    _print(metrics(result))


def _announce(configs: Sequence[str]) -> None:
    _print({"configs": [json.loads(config) for config in configs]})


def _print(message: object) -> None:
    with contextlib.suppress(OSError):  # whoever started this has gone, and its ranks may still run
        print(json.dumps(message), flush=True)


def _input_ended() -> bool:
    """Return whether standard input has ended; what it says does not matter."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not os.read(sys.stdin.fileno(), 4096)
