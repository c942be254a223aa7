"""``ina admit --controller``: a job whose workers somebody else starts, admitted by a controller."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from hostlib.io.interfaces import known_as
from ina.cli.cluster_options import names_of
from ina.cli.declared import Declared
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import say
from ina.cli.run_options import EMBEDDED, FaultOptions, MemoryOptions, PortKind, SwitchOptions
from ina.cli.service.common import CONTROLLER, ControllerOptions
from ina.cli.service.job_options import JobOptions
from ina.runtime.spec import JobResult, LaunchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOptions:
    """How long a job waits for its controller."""

    wait: Annotated[
        float,
        Declared(
            metavar="SECONDS",
            min=0,
            rich_help_panel=CONTROLLER,
            help="Let the job wait up to this long to be admitted. Ranks of launchers wait 300 s at most.",
        ),
    ] = 240.0


def asks(at: ControllerOptions, elsewhere: Sequence[str]) -> bool:
    """Return whether a controller is to be asked.

    `elsewhere` are the options that say which switches to use. They take precedence over INA_CONTROLLER.
    Raises Failure if --controller is given beside them.
    """
    if elsewhere and at.controller and at.controller != os.environ.get("INA_CONTROLLER"):
        raise Failure(f"--controller and {elsewhere[0]} are mutually exclusive", USAGE)
    return bool(at.controller) and not elsewhere


def check(program: str | None, lanes: int | None, switches: SwitchOptions, faults: FaultOptions) -> None:
    """Raise Failure for options of switches, which are the controller's.

    Args:
        program: Name of their program.
        lanes: Values per packet.
        switches: Options of the switches.
        faults: Options of the links' faults.
    """
    given = {
        "--program": program,
        "--lanes": lanes,
        "--replace-program": switches.replace_program,
        "--p4runtime": switches.p4runtime,
        "--port-kind": switches.port_kind is not PortKind.AUTO,
        "--transit": switches.transit,
        "--loss and the like": faults.impairments(),
    }
    for option, value in given.items():
        if value:
            raise Failure(f"{option}: the switches are the controller's, as is their program", USAGE)


def elsewhere(switches: SwitchOptions, cluster: object, host: object) -> list[str]:
    """Return the options that were given of those that say which switches to use."""
    given = {
        "--cluster": cluster,
        "--switch": switches.switch != EMBEDDED,
        "--tree": switches.tree,
        "--host": host,
    }
    return [option for option, value in given.items() if value]


def admitted(
    at: ControllerOptions,
    wait_s: float,
    job: JobOptions,
    memory: MemoryOptions,
    spec: LaunchSpec,
    machines: Sequence[str],
    listen: str | None,
    *,
    on_ready: Callable[[Sequence[str]], None],
    starter_left: Callable[[], bool],
) -> JobResult:
    """Have a controller admit a job, and hold it until its ranks have left.

    Args:
        at: The controller.
        wait_s: Longest time for which the job waits.
        job: What it is told of the job.
        memory: Options of windows and slots.
        spec: The job's ranks by machine.
        machines: Names and addresses of each machine, with commas; none: this machine.
        listen: Address at which the ranks meet.
        on_ready: Called with the ranks' configurations.
        starter_left: See `ina.runtime.launch.attend`.

    Raises Failure, WorkerFailed.
    """
    try:
        from ina.service.holder import Held, hold
    except ImportError as error:
        raise Failure(f"asking a controller needs {error.name}: pip install 'ina[service]'") from error
    names = names_of(machines or [",".join(known_as())], len(spec.machines))
    if len(names) > 1 and listen is None:
        raise Failure("--listen: ranks on several machines need an address of this one to meet at", USAGE)
    several = any(len(ranks) > 1 for ranks in spec.machines)
    if several and not spec.hierarchical:
        raise Failure("several ranks on one machine need --hierarchical", USAGE)
    held = Held(
        name=job.name or f"admitted-{secrets.token_hex(4)}",
        spec=spec,
        known_as=names,
        keys=job.keys() | {key: value for key, value in asdict(memory).items() if value is not None},
        iteration_bytes=job.model_bytes,
        wait_s=wait_s,
        listen=listen,
    )
    return hold(
        held,
        at.connect,
        on_ready=on_ready,
        on_wait=lambda reason: say(f"ina: job {held.name!r} waits: {reason}"),
        starter_left=starter_left,
    )
