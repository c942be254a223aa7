"""``ina controller``: the controller as a service, and the tokens of those who may ask it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ina.cli.errors import USAGE, Failure, Interrupted
from ina.cli.plain import say
from ina.cli.register import group, register
from ina.runtime.quickly import quickly

if TYPE_CHECKING:
    from ina.service.daemon import Daemon

EPILOG = """Examples:

  ina controller --state /var/lib/ina --testbed lab

  INA_TOKEN=$(cat secret) ina controller --state /var/lib/ina --cluster lab.toml

  ina controller --state state --memory deadline-lazy --routing grid

  ina controller token add alice --state /var/lib/ina

  ina controller backup ina.backup --state /var/lib/ina

  ina controller --state /var/lib/ina --listen 10.0.0.1:9580 --tls-cert cert.pem --tls-key key.pem
"""

app = group(
    "controller",
    "Serve the jobs of many people on the servers and switches of a cluster; see docs/controller.md.",
    epilog=EPILOG,
)
register(app, "token", "ina.cli.token:app", "Add, list and remove the tokens by which people are known.")
for _name, _line in (
    ("backup", "Copy a state with its tokens into one file, while a controller may use it."),
    (
        "restore",
        "Put a backup in the place of a state that no controller uses; what was there is kept beside it.",
    ),
    ("adopt", "Go on from a state that lacks events which it has had, as after 'restore'."),
    (
        "forget",
        "End all that runs of a state, and begin anew at the next start; what was there is kept beside it.",
    ),
):
    register(app, _name, f"ina.cli.state:{_name}", _line)


@app.callback(invoke_without_command=True)
def controller(
    context: typer.Context,
    state: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="DIR",
            help="Keep all jobs and decisions in this directory; a controller that is started again "
            "continues from it.",
        ),
    ] = None,
    testbed: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Use the servers and switches of this testbed ('ina topo up', program shared). Default: the "
            "only one.",
        ),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Use the machines and switches of this cluster file, by their addresses, instead of a "
            "testbed; 'ina reload' and SIGHUP read it again. INA_TOKEN has the secret of its fallback "
            "servers.",
        ),
    ] = None,
    program: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="With --cluster: have switches without a program run this one, whose jobs share slots.",
        ),
    ] = "shared",
    lanes: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            help="With --cluster: 32-bit values of a packet. Default: as many as the running switches use.",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="With --cluster: what the switches are, embedded or bmv2, for which p4c compiles.",
        ),
    ] = "embedded",
    switch_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --cluster: connect to switches over TLS, and accept only certificates signed by "
            "this CA (PEM).",
        ),
    ] = None,
    switch_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --switch-ca: present this client certificate (PEM)."),
    ] = None,
    switch_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --switch-cert: use the certificate's private key in this file (PEM).",
        ),
    ] = None,
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Serve people at HOST:PORT (port 0: any free port), or unix:PATH. Where other machines can "
            "reach it, TLS and tokens are needed.",
        ),
    ] = "127.0.0.1:9580",
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve over TLS with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --tls-cert: use the certificate's private key in this file (PEM)."
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Schedule jobs by this policy of 'ina schedule policies'. Default: joint, which also places "
            "them and chooses trees, up to 32 servers; edf beyond.",
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Place jobs by this policy. Default: the scheduler, or netpack."),
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Choose trees by this policy. Default: ecmp-everywhere; with joint shortest-path, which "
            "leaves trees to it.",
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="NAME", help="Divide slots by this policy. Default: shared.")
    ] = None,
    period: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Divide memory anew at this interval; 0: only when jobs start, end or move.",
        ),
    ] = 60.0,
    interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Ask the policy only at multiples of this many seconds; 0: whenever jobs change.",
        ),
    ] = 0.0,
    policies_file: Annotated[
        Path | None,
        typer.Option(
            "--policies",
            metavar="FILE",
            help="Take policies from this file, instead of the options: scheduler, placement, routing, "
            "memory, period_s, interval_s, retries and a table of the scheduler's settings. 'ina reload' and "
            "SIGHUP read it again.",
        ),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(
            metavar="TIMES",
            min=0,
            help="Retry a failed job up to this many times, from its last checkpoint.",
        ),
    ] = 0,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Have workers be started by this machine (local), by ssh (ssh), by Slurm (slurm) or by Ray "
            "(ray); see docs/executors.md. Default: local on a testbed, ssh with --cluster.",
        ),
    ] = None,
    launch_with: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="With --executor ssh: start commands on machines with this command; {host} is replaced by "
            "the machine's name, {address} by its address, {command} by the command.",
        ),
    ] = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host} {command}",
    licence: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="With --executor slurm: have each job take one of this licence of Slurm for each slot of "
            "its own. Default: none.",
        ),
    ] = "",
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Pass this environment variable on to the commands of jobs, besides those that "
            "docs/security.md lists; give it several times for several, or a pattern such as 'HF_*'.",
        ),
    ] = None,
    keep_jobs: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            min=0,
            help="Keep up to this many jobs that are over in lists, with their logs. 'ina show' also finds "
            "older ones.",
        ),
    ] = 10_000,
    keep_days: Annotated[
        float,
        typer.Option(metavar="DAYS", help="Keep a job for this long after its end, if --keep-jobs allows."),
    ] = 30.0,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Own switches that belong to another controller; its jobs are removed from them.",
        ),
    ] = False,
    log: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Write each decision and each problem to standard error as a line of text or json.",
        ),
    ] = "text",
) -> None:
    """Serve the jobs of many people on the servers and switches of a cluster; see docs/controller.md."""
    if context.invoked_subcommand is not None:
        return
    if state is None:
        raise Failure("give --state DIR, where the controller keeps its state", USAGE)
    if (tls_cert is None) != (tls_key is None):
        raise Failure("--tls-cert and --tls-key need each other: give both or neither", USAGE)
    if cluster is not None and testbed is not None:
        raise Failure("--cluster and --testbed are mutually exclusive", USAGE)
    of_cluster = {
        "--program": program != "shared",
        "--lanes": lanes is not None,
        "--target": target != "embedded",
        "--switch-ca": switch_ca is not None,
    }
    if cluster is None and any(of_cluster.values()):
        option = next(option for option, given in of_cluster.items() if given)
        raise Failure(f"{option} needs --cluster: a testbed's switches are as 'ina topo up' made them", USAGE)
    if target not in ("embedded", "bmv2"):
        raise Failure(f"--target {target}: want embedded or bmv2", USAGE)
    executor = executor or ("local" if cluster is None else "ssh")
    if executor not in ("local", "ssh", "slurm", "ray"):
        raise Failure(f"--executor {executor}: want local, ssh, slurm or ray", USAGE)
    if licence and executor != "slurm":
        raise Failure(f"--licence {licence} needs --executor slurm", USAGE)
    if log not in ("text", "json"):
        raise Failure(f"--log {log}: want text or json", USAGE)
    try:
        with quickly():
            from controller.policies.by_kind import AllocationSettings
            from ina.cli import options
            from ina.service import logs, notify
            from ina.service.api import Address, Certificate, speaking
            from ina.service.engines import EngineChoice
            from ina.service.machines import MachineSite, read_cluster
            from ina.service.policies import Policies, read_policies
            from ina.service.reload import Files, reloading
            from ina.service.retention import DAY_S, Retention
            from ina.service.serve import opened
            from ina.service.site import Site, TestbedSite
            from ina.service.tokens import Tokens
    except ImportError as error:
        raise Failure(f"ina controller needs {error.name}: pip install 'ina[service]'") from error

    folder = state.absolute()  # what it starts has other working directories
    address = Address.parse(listen)
    certificate = None if tls_cert is None or tls_key is None else Certificate(tls_cert, tls_key)
    around = AllocationSettings(period_s=period)
    retention = Retention(keep_jobs, keep_days * DAY_S)
    engine = EngineChoice(executor, licence, launch_with, tuple(pass_env or ()))  # type: ignore[arg-type]  # checked above
    site: Site
    if cluster is None:
        site = TestbedSite.find(testbed)
    else:
        tls = options.TlsOptions(tls_ca=switch_ca, tls_cert=switch_cert, tls_key=switch_key).tls("")
        site = MachineSite(
            cluster=read_cluster(cluster), program=program, lanes=lanes, target=target, tls=tls
        )
    named = {"scheduler": scheduler, "placement": placement, "routing": routing, "memory": memory}
    policies = Policies.by_default(
        len(site.cluster.servers),
        {kind: name for kind, name in named.items() if name is not None},
        around,
        interval_s=interval,
        retries=retries,
    )
    given = policies if policies_file is None else read_policies(policies_file, policies)
    files = Files(cluster and cluster.absolute(), policies_file and policies_file.absolute(), policies)
    logs.write_to(sys.stderr, "json" if log == "json" else "text")

    async def serve() -> int:
        """Serve until a signal comes, and return its number."""
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with opened(
            folder, site, given, engine=engine, retention=retention, take_over=take_over, on_wait=_waits
        ) as service:
            with _signals(ended):
                if policies_file is not None or cluster is not None:
                    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloading(service, files))
                running = asyncio.create_task(service.run())
                try:
                    async with speaking(
                        service,
                        address,
                        Tokens(folder),
                        certificate=certificate,
                        reload=lambda: files.reload(service),
                    ) as url:
                        say(f"ina: controller at {url}")
                        beside = [
                            asyncio.create_task(_log_decisions(service)),
                            asyncio.create_task(notify.follow(service, url)),
                        ]
                        either: set[asyncio.Future[Any]] = {running, ended}
                        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                        for task in beside:
                            task.cancel()
                        await asyncio.gather(*beside, return_exceptions=True)
                finally:
                    running.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await running
        return ended.result()

    raise Interrupted(asyncio.run(serve()))


async def _log_decisions(service: Daemon) -> None:
    """Write down the decisions from now on: earlier ones were, when they were taken."""
    from ina.service import logs

    while service.ready:
        await asyncio.sleep(0.01)
    await logs.follow(service, sum(service.counted().values()))


def _waits(holder: str) -> None:
    say(f"ina: {holder} uses this state; waiting until it has ended")


@contextlib.contextmanager
def _signals(ended: asyncio.Future[int]) -> Iterator[None]:
    """Have the signals that end a command end the service in good order."""
    loop = asyncio.get_running_loop()
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.getsignal(number) for number in numbers}

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in numbers:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
