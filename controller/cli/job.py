"""Runs one job: a switch, the job's admission, its workers, and all of it taken down again."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller import Admission, Controller, ControllerError, Job, Member, NoSuchJob
from controller.cli import options
from controller.cli.embedded import EmbeddedSwitch
from controller.cli.errors import USAGE, Failure
from controller.cli.programs import bundle
from hostlib import DEFAULT_SLOTS, JobConfig, TransportConfig
from hostlib.launcher import Rendezvous, WorkerExit, Workers

MAX_WORKERS = 32  # bits of the contribution bitmap (p4src/include/config.p4)
UDP_PORT = 42592

Reports = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What `run_job` runs."""

    command: Sequence[str]
    workers: int
    program: str = "exclusive"
    lanes: int = 256
    slots: int = DEFAULT_SLOTS
    switch: str = "embedded"
    """``embedded``, or ``grpc://host:port`` of a switch that runs."""
    udp_base: str = "127.0.0.1:47000"
    """With a running switch: port p of it is bound to this UDP port plus p."""
    impairments: str = ""
    seed: int = 0
    timeout_s: float = 8.0
    straggler_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job went; `counters` are the switch's, by outcome."""

    failure: WorkerExit | None
    time_s: float
    reports: Reports
    counters: Mapping[str, int]
    refused: Mapping[str, int]
    """Packets of no job, by reason."""

    def raise_failure(self) -> None:
        """Raise Failure, with the worker's exit status, if the job failed."""
        if self.failure:
            who = f"rank {self.failure.rank} " if self.failure.rank >= 0 else ""
            raise Failure(f"{who}{self.failure.reason}", exit_code=self.failure.status)


@contextlib.contextmanager
def _attached(spec: JobSpec) -> Iterator[tuple[str, Callable[[int], str], Callable[[], str | None]]]:
    """Yield the P4Runtime address, where each switch port listens, and what tells if the switch ended."""
    if spec.switch == "embedded":
        arguments = ["--program", spec.program, "--lanes", str(spec.lanes), "--seed", str(spec.seed)]
        for port in range(1, spec.workers + 1):
            arguments += ["--port", f"{port}=udp:0"]
        if spec.impairments:
            arguments += ["--impair", spec.impairments]
        with EmbeddedSwitch(arguments) as switch:
            yield switch.address, switch.udp_address, switch.ended
    elif spec.switch.startswith("grpc://"):
        if spec.impairments:
            raise Failure("impairments belong to the switch: give them to 'ina switch'", exit_code=USAGE)
        server = spec.switch.removeprefix("grpc://")
        options.parse_address("--switch", server)
        host, base = options.parse_address("--udp-base", spec.udp_base)
        yield server, lambda port: f"{host}:{base + port}", lambda: None
    else:
        raise Failure(f"--switch {spec.switch!r}: want embedded or grpc://host:port", exit_code=USAGE)


def run_job(
    spec: JobSpec,
    *,
    on_line: Callable[[int, str, bool], None],
    on_progress: Callable[[Reports], None] = lambda reports: None,
) -> JobResult:
    """Run the job to its end; nothing of it stays in the switch.

    Raises:
        Failure: more workers than a switch can sum, or the switch cannot be used.
        ControllerError: the switch refused the job.
        LaunchError: the command cannot be run.
    """
    if not 1 <= spec.workers <= MAX_WORKERS:
        raise Failure(
            f"{spec.workers} workers: one switch sums 1 to {MAX_WORKERS} children, the width of its bitmap",
            exit_code=USAGE,
        )
    with contextlib.ExitStack() as stack:
        address, port_address, switch_ended = stack.enter_context(_attached(spec))
        controller = stack.enter_context(Controller.connect(address))
        if spec.switch != "embedded":
            controller.load(bundle(spec.program, spec.lanes))
        members = tuple(_member(rank) for rank in range(spec.workers))
        admission = controller.admit(Job(members=members, slots=spec.slots), ports=range(1, 256))
        stack.callback(_remove, controller, admission, switch_ended)
        rendezvous = stack.enter_context(Rendezvous(job=admission.job, size=spec.workers))
        environments = [
            {
                "OMP_NUM_THREADS": "1",  # the workers share this machine's cores
                "INA_JOB": _config(spec, admission, rank, port_address, rendezvous).to_json(),
            }
            for rank in range(spec.workers)
        ]
        started = time.monotonic()
        workers = Workers(spec.command, environments, rendezvous, on_line)
        stack.callback(workers.kill)

        def tick() -> None:
            if why := switch_ended():
                rendezvous.fault(why)
            on_progress(rendezvous.reports())

        failure = workers.wait(on_tick=tick)
        elapsed = time.monotonic() - started
        if why := switch_ended():
            return JobResult(failure or WorkerExit(-1, 1, why), elapsed, rendezvous.reports(), {}, {})
        try:
            counters = controller.counters(admission.job)
            refused = {name: count for name, count in controller.row_counters(0).items() if count}
        except ControllerError as error:
            if failure is None:
                raise
            warnings.warn(f"the switch's counters are not known: {error}", stacklevel=2)
            counters, refused = {}, {}
        return JobResult(failure, elapsed, rendezvous.reports(), counters, refused)


def _remove(controller: Controller, admission: Admission, switch_ended: Callable[[], str | None]) -> None:
    if switch_ended() is not None:
        return
    try:
        controller.remove(admission.job)
    except NoSuchJob:
        return  # somebody else removed it
    except ControllerError as error:
        warnings.warn(f"job {admission.job} may still be on the switch: {error}", stacklevel=2)


def _member(rank: int) -> Member:
    return Member(
        rank=rank, port=None, mac=f"02:00:00:00:00:{rank + 1:02x}", ip=f"10.0.0.{rank + 1}", udp_port=UDP_PORT
    )


def _config(
    spec: JobSpec, admission: Admission, rank: int, port_address: Callable[[int], str], rendezvous: Rendezvous
) -> JobConfig:
    member = admission.members[rank]
    assert member.port is not None
    return JobConfig(
        job=admission.job,
        rank=rank,
        size=spec.workers,
        lanes=spec.lanes,
        slots=admission.region.size,
        timeout_s=spec.timeout_s,
        straggler_timeout_s=spec.straggler_timeout_s,
        rendezvous=rendezvous.address,
        transport=TransportConfig(
            kind="loopback",
            local="127.0.0.1:0",
            switch=port_address(member.port),
            src_mac=member.mac,
            src_ip=member.ip,
            udp_port=member.udp_port,
        ),
    )
