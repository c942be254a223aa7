"""``ina admit``: admit a job to a switch, or by a controller, for workers that another launcher starts."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from controller.switches.model import SWITCH_IP
from hostlib.io.interfaces import known_as
from hostlib.launch.command_line import AGAIN
from hostlib.version import PROTOCOL
from ina.cli import options
from ina.cli.cluster_options import MACHINES, ClusterFile, cluster_of, names_of
from ina.cli.command import USAGE, Declared, Failure, refuse, say
from ina.cli.errors import verdict
from ina.cli.run_options import (
    EMBEDDED,
    FabricOptions,
    MemoryOptions,
    Timeouts,
    check,
    check_memory,
)
from ina.cli.service.common import CONTROLLER, ControllerOptions, JobOptions
from ina.run.launch import machine_hosts
from ina.run.launch.job_run import Attendance, met
from ina.run.launch.spec import Attachment, FabricSpec, JobResult, LaunchSpec, MachineAtPort, metrics
from ina.run.live import WorkerOptions, run_one
from ina.run.switches import cluster_fabric
from ina.run.switches.fabric import SwitchFabric, open_fabric
from ina.run.switches.programs import settled

_ONE_EACH = (
    "--host needs a program whose slots are not shared, such as exclusive, and a running switch: "
    "give --switch ADDRESS"
)

AGAIN_S = 30.0
"""Maximum time, in seconds, for which --repeat waits after a job for a request of the next job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitSettings:
    """Options of 'ina admit': a job, and the switches and machines, or the controller, that serve it."""

    workers: Annotated[int, Declared(*options.WORKERS, help="Set the number of workers, 1 to 32.")]
    memory: MemoryOptions
    fabric: FabricOptions
    times: Timeouts
    machines: Annotated[
        str,
        Declared(
            metavar="RANK,…/RANK,…",
            rich_help_panel=MACHINES,
            help="List the ranks of each machine, machines separated by '/'. Default: all ranks on "
            "this machine.",
        ),
    ] = ""
    hierarchical: Annotated[
        bool,
        Declared(
            "--hierarchical/--no-hierarchical",
            rich_help_panel=MACHINES,
            help="Sum the ranks of each machine on that machine first; each machine then counts as "
            "one worker of the switch.",
        ),
    ] = False
    cluster: ClusterFile = None
    machine: Annotated[
        list[str] | None,
        Declared(
            metavar="NAME,…",
            rich_help_panel=MACHINES,
            help="With --cluster or --controller: give a machine of the job, by its name in the cluster, or "
            "by names and addresses of which the cluster has one. Repeat for each machine, in the order of "
            "their lowest ranks. Default with --controller: this machine.",
        ),
    ] = None
    host: Annotated[
        list[str] | None,
        Declared(
            metavar="PORT=IP/MAC",
            rich_help_panel=MACHINES,
            help="With --switch ADDRESS: give the switch port of a machine, and the IP and MAC "
            "addresses of the machine on that port. Repeat for each machine, in the order of "
            "their lowest ranks.",
        ),
    ] = None
    switch_ip: Annotated[
        str,
        Declared(
            metavar="IP",
            rich_help_panel=MACHINES,
            help="With --host: set the IP address at which the machines of --host reach the switch.",
        ),
    ] = SWITCH_IP
    given: Annotated[
        bool,
        Declared(
            "--given",
            rich_help_panel=MACHINES,
            help="Serve a job that a controller has admitted and will remove: the environment variable "
            "INA_GIVEN describes it. Give its machines with --machine.",
        ),
    ] = False
    again: Annotated[
        bool,
        Declared(
            "--repeat",
            help="Without --controller and --given: wait up to 30 s after the job for the line 'again' on "
            "standard input, and admit the next job of these ranks on the same switches. Repeat until no "
            "line comes.",
        ),
    ] = False
    listen: Annotated[
        str | None,
        Declared(
            metavar="IP",
            rich_help_panel=MACHINES,
            help="Set the address of this machine to which the ranks connect at their start. Default: a "
            "loopback address, which other machines cannot reach.",
        ),
    ] = None
    at: ControllerOptions
    wait: Annotated[
        float,
        Declared(
            metavar="SECONDS",
            min=0,
            rich_help_panel=CONTROLLER,
            help="Wait up to this long for the controller to admit the job. Ranks that a launcher has "
            "started wait for this command for 300 s at most.",
        ),
    ] = 240.0
    job: JobOptions

    def spec(self) -> LaunchSpec:
        """Return the job and its launch, as these options describe them. Raises Failure."""
        job = self.memory.job(self.workers)
        return self.times.of(LaunchSpec(job=job, machines=self.ranks, hierarchical=self.hierarchical))

    @property
    def ranks(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each machine, read from ``0,1/2,3``; without --machines, all ranks on one machine.

        Raises Failure.
        """
        text, workers = self.machines, self.workers
        try:
            machines = tuple(tuple(map(int, part.split(","))) for part in text.split("/")) if text else ()
        except ValueError:
            machines = ((-1,),)
        refuse(
            text and sorted(rank for ranks in machines for rank in ranks) != list(range(workers)),
            f"--machines {text!r}: want each rank of 0..{workers - 1} once, such as 0,1/2,3",
        )
        return machines or (tuple(range(workers)),)


def admit(asked: AdmitSettings) -> None:
    """Admit a job whose workers are started by torchrun, mpirun or srun.

    Starts the switches, or uses running ones, and admits the job, as 'ina run' does. Then prints one line of
    JSON: an object whose "configs" holds, for each rank, the value of its environment variable INA_JOB. The
    configurations contain the job's token: keep them out of logs. Serves the job until all ranks have left,
    or until standard input ends before all ranks have joined. The last line holds the statistics of the job.

    With --controller, a controller finds the machines in its cluster, chooses tree and slots, and admits the
    job to the switches; 'ina jobs' and 'ina explain' then show it. --cluster, --switch and --tree take
    precedence over INA_CONTROLLER.

    A program that uses hostlib runs this command by itself if torchrun, mpirun or srun has started it. It
    takes the options from INA_CLUSTER, INA_SWITCH, INA_CONTROLLER and INA_OPTIONS.

    Examples:
        ina admit -np 4

        ina admit -np 4 --program shared --slots 256

        ina admit -np 4 --switch grpc://127.0.0.1:9559

        ina admit -np 4 --machines 0,1/2,3 --hierarchical --switch grpc://10.1.0.9:9559 --listen 10.1.0.1
        --host 1=10.0.0.1/02:00:00:00:00:01 --host 2=10.0.0.2/02:00:00:00:00:02

        ina admit -np 4 --machines 0,1/2,3 --hierarchical --cluster lab.yaml --machine node1 --machine node2

        ina admit -np 4 --machines 0,1/2,3 --hierarchical --controller https://lab:9580 --machine node1
        --machine node2 --listen 10.1.0.1
    """
    with _errors_as_json():
        if asked.given:
            _print(metrics(_serve_given(asked)))
        elif _asks_controller(asked):
            _print(metrics(_admitted(asked)))
        else:
            _serve_on_switches(asked)


def _serve_on_switches(settings: AdmitSettings) -> None:
    """Start or find switches, and serve the job on them; with --repeat, serve further jobs after it."""
    fabric = settings.fabric.fabric(cluster=settings.cluster is not None)
    running = cluster_of(settings.cluster, fabric, settings.fabric) if settings.cluster else None
    spec, listen = settings.spec(), settings.listen
    check(fabric, [spec])
    if running is not None:
        names = names_of(settings.machine or [], len(spec.machines))
        spec = replace(spec, places=tuple(machine_hosts.identified(running.topology, each) for each in names))
        opened: AbstractContextManager[SwitchFabric] = cluster_fabric.opened(fabric, running, spec.places)
        listen = listen or machine_hosts.reached_at(running.topology, spec.places[0])
    else:
        if settings.host:
            fabric = replace(fabric, attached=_reached(fabric, settings.host, settings.switch_ip))
        fabric, offers = settled(fabric)  # after all checks that need no switch
        refuse(settings.host and offers.shared, _ONE_EACH)
        check_memory(settings.memory, [spec], offers)
        opened = open_fabric(fabric, [spec.children])
    with opened as switches_there:
        check_memory(settings.memory, [spec], switches_there.offers)
        how = WorkerOptions(on_output=lambda *_: None, attendance=ATTENDANCE, listen=listen)
        while True:
            result = run_one(switches_there, spec, how)
            _print(metrics(result))
            again = not result.failure and settings.again and _next_input(AGAIN_S)
            if not again or again.strip() != AGAIN.encode():
                return


def _serve_given(settings: AdmitSettings) -> JobResult:
    """Serve the job of INA_GIVEN, which a controller has admitted, on the machines that the options name."""
    from ina.run.launch.runner import given_job

    machines = [each.split(",") for each in settings.machine or []]
    job, first = given_job(os.environ.get("INA_GIVEN", ""), settings.ranks, machines)
    job.attendance = ATTENDANCE
    with met(job, settings.listen or first) as rendezvous:
        return job.run(rendezvous)


@contextlib.contextmanager
def _errors_as_json() -> Iterator[None]:
    """Print errors as JSON to standard output, too: ranks on other machines do not see standard error."""
    try:
        yield
    except Exception as error:
        _print({"failed": verdict(error)[0]})
        raise


def _reached(fabric: FabricSpec, hosts: Sequence[str], switch_ip: str) -> Attachment:
    """Return the running switch, and the machines at its ports as `hosts` (--host) gives them.

    Raises Failure.
    """
    if fabric.attached is None:
        raise Failure(_ONE_EACH, exit_code=USAGE)
    return replace(fabric.attached, machines=tuple(map(_machine, hosts)), ip=switch_ip)


def _machine(text: str) -> MachineAtPort:
    port, equals, addresses = text.partition("=")
    ip, slash, mac = addresses.partition("/")
    refuse(
        not (equals and slash and ip and mac and port.isascii() and port.isdecimal()),
        f"--host {text!r}: want PORT=IP/MAC, such as 1=10.0.0.1/02:00:00:00:00:01",
    )
    return MachineAtPort(int(port), ip, mac)


def _announce(configs: Sequence[str]) -> None:
    _print({"configs": [json.loads(config) for config in configs], "protocol": PROTOCOL})


def _print(message: object) -> None:
    with contextlib.suppress(OSError):  # the parent process has gone, and its ranks may still run
        print(json.dumps(message), flush=True)


def _next_input(wait_s: float) -> bytes | None:
    """Return the next bytes of standard input, b"" at its end; None: there are none within this time."""
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return os.read(sys.stdin.fileno(), 4096) if ready else None


ATTENDANCE = Attendance(_announce, lambda: _next_input(0) == b"")


# --------------------------------------------------------------------------- by a controller


def _asks_controller(settings: AdmitSettings) -> bool:
    """Return whether a controller admits the job: options that name switches override INA_CONTROLLER.

    Raises Failure if --controller is given together with such an option.
    """
    given = {
        "--cluster": settings.cluster,
        "--switch": settings.fabric.switches.switch != EMBEDDED,
        "--tree": settings.fabric.switches.tree,
        "--host": settings.host,
    }
    elsewhere = [option for option, value in given.items() if value]
    controller = settings.at.controller
    if elsewhere and controller and controller != os.environ.get("INA_CONTROLLER"):
        raise Failure(f"--controller and {elsewhere[0]} are mutually exclusive", USAGE)
    return bool(controller) and not elsewhere


def _admitted(settings: AdmitSettings) -> JobResult:
    """Ask a controller to admit the job, and serve it until its ranks have left.

    Raises Failure, WorkerFailed.
    """
    switches = settings.fabric.switches
    given = {
        "--program": settings.fabric.program,
        "--lanes": settings.fabric.lanes,
        "--replace-program": switches.replace_program,
        "--p4runtime": switches.p4runtime,
        "--port-kind": switches.port_kind != "auto",
        "--transit": switches.transit,
        "--loss and the like": settings.fabric.faults.impairments(),
    }
    for option, value in given.items():
        refuse(value, f"{option}: the controller decides this for its switches; leave it out")
    spec = settings.spec()
    from ina.run.holder import ExternalJob, hold

    names = names_of(settings.machine or [",".join(known_as())], len(spec.machines))
    if len(names) > 1 and settings.listen is None:
        raise Failure(
            "--listen is missing: want an address of this machine that the other machines can reach", USAGE
        )
    refuse(
        any(len(ranks) > 1 for ranks in spec.machines) and not spec.hierarchical,
        "several ranks on one machine need --hierarchical",
    )
    memory = {key: value for key, value in asdict(settings.memory).items() if value is not None}
    job = ExternalJob(
        name=settings.job.name or f"admitted-{secrets.token_hex(4)}",
        spec=spec,
        known_as=names,
        keys=settings.job.keys() | memory,
        iteration_bytes=settings.job.model_bytes,
        wait_s=settings.wait,
        listen=settings.listen,
    )
    return hold(
        job,
        settings.at.connect,
        ATTENDANCE,
        on_wait=lambda reason: say(f"ina: job {job.name!r} waits: {reason}"),
    )
