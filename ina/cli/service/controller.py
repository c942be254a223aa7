"""``ina controller``: the controller as a service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ina.cli.command import USAGE, Declared, Failure, refuse
from ina.cli.commands import for_typer, group, register
from ina.cli.options import AskingOptions
from ina.quickly import quickly


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Options of 'ina controller': its state, cluster, address, policies, and how workers start."""

    state: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="DIR",
            help="Keep all jobs and decisions in this directory; a controller that is started again "
            "continues from it.",
        ),
    ] = None
    testbed: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            help="Use the servers and switches of this testbed ('ina topo up', program shared). Default: the "
            "only testbed that is up.",
        ),
    ] = None
    cluster: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            help="Use the machines and switches of this cluster file, by their addresses, instead of a "
            "testbed; 'ina reload' and SIGHUP read it again. INA_TOKEN has the secret of its fallback "
            "servers.",
        ),
    ] = None
    program: Annotated[
        str,
        Declared(
            metavar="NAME",
            help="With --cluster: load this program, whose jobs must share slots, into switches without a "
            "program.",
        ),
    ] = "shared"
    lanes: Annotated[
        int | None,
        Declared(
            metavar="COUNT",
            help="With --cluster: put this many 32-bit values into each packet. Default: as in the running "
            "switches.",
        ),
    ] = None
    target: Annotated[
        str,
        Declared(
            metavar="KIND",
            help="With --cluster: give the kind of switches: embedded, or bmv2, for which p4c compiles.",
        ),
    ] = "embedded"
    switch_ca: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            help="With --cluster: connect to switches over TLS, and accept only certificates signed by "
            "this CA (PEM).",
        ),
    ] = None
    switch_cert: Annotated[
        Path | None,
        Declared(metavar="FILE", help="With --switch-ca: present this client certificate (PEM)."),
    ] = None
    switch_key: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            help="With --switch-cert: use the certificate's private key in this file (PEM).",
        ),
    ] = None
    listen: Annotated[
        str,
        Declared(
            metavar="ADDRESS",
            help="Serve clients at HOST:PORT (port 0: any free port), or unix:PATH. An address that other "
            "machines can reach needs TLS and tokens.",
        ),
    ] = "127.0.0.1:9580"
    tls_cert: Annotated[
        Path | None, Declared(metavar="FILE", help="Serve over TLS with this certificate (PEM).")
    ] = None
    tls_key: Annotated[
        Path | None,
        Declared(
            metavar="FILE", help="With --tls-cert: use the certificate's private key in this file (PEM)."
        ),
    ] = None
    scheduler: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            help="Schedule jobs by this policy of 'ina schedule policies'. Default: joint, which also "
            "places jobs and chooses trees; edf on a cluster of more than 32 servers, or with --placement.",
        ),
    ] = None
    placement: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            help="Place jobs by this policy. Default: netpack; with --scheduler joint, joint places them.",
        ),
    ] = None
    routing: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            help="Choose trees by this policy. Default: ecmp-everywhere; with --scheduler joint, "
            "shortest-path, which keeps the trees that joint chooses.",
        ),
    ] = None
    memory: Annotated[
        str | None, Declared(metavar="NAME", help="Divide slots by this policy. Default: shared.")
    ] = None
    period: Annotated[
        float,
        Declared(
            min=0,
            metavar="SECONDS",
            help="Divide memory anew at this interval; 0: only when jobs start, end or move.",
        ),
    ] = 60.0
    asking: AskingOptions
    policies_file: Annotated[
        Path | None,
        Declared(
            "--policies",
            metavar="FILE",
            help="Take policies from this file, instead of the options: scheduler, placement, routing, "
            "memory, period_s, interval_s, retries and a table of the scheduler's settings. 'ina reload' and "
            "SIGHUP read it again.",
        ),
    ] = None
    executor: Annotated[
        str | None,
        Declared(
            metavar="KIND",
            help="Start workers on this machine (local), by ssh (ssh), by Slurm (slurm) or by Ray "
            "(ray); see docs/guides/slurm-ray.md. Default: local on a testbed, ssh with --cluster.",
        ),
    ] = None
    launch_with: Annotated[
        str,
        Declared(
            metavar="COMMAND",
            help="With --executor ssh: start commands on machines with this command; {host} is replaced by "
            "the machine's name, {address} by its address, {command} by the command.",
        ),
    ] = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host} {command}"
    licence: Annotated[
        str,
        Declared(
            metavar="NAME",
            help="With --executor slurm: request this Slurm licence once for each slot that belongs to "
            "the job alone. Default: no licence.",
        ),
    ] = ""
    pass_env: Annotated[
        list[str] | None,
        Declared(
            metavar="NAME",
            help="Pass this environment variable on to the commands of jobs, besides those that "
            "docs/explanations/security-controller.md lists. NAME may be a pattern such as 'HF_*'. "
            "Repeatable.",
        ),
    ] = None
    keep_jobs: Annotated[
        int,
        Declared(
            metavar="COUNT",
            min=0,
            help="List up to this many jobs that are over, and keep their logs. 'ina show' also finds "
            "older ones.",
        ),
    ] = 10_000
    keep_days: Annotated[
        float,
        Declared(metavar="DAYS", help="List a job up to this long after its end; see --keep-jobs."),
    ] = 30.0
    take_over: Annotated[
        bool,
        Declared(
            "--take-over",
            help="Take over switches of another controller; its jobs are removed from them.",
        ),
    ] = False
    log: Annotated[
        str,
        Declared(
            metavar="KIND",
            help="Write each decision and each problem to standard error as a line of text or json.",
        ),
    ] = "text"

    def check(self) -> None:
        """Raise Failure for options that contradict each other, or need another option."""
        refuse(
            (self.tls_cert is None) != (self.tls_key is None),
            "--tls-cert and --tls-key need each other: give both or neither",
        )
        refuse(
            self.cluster is not None and self.testbed is not None,
            "--cluster and --testbed are mutually exclusive",
        )
        of_cluster = {
            "--program": self.program != "shared",
            "--lanes": self.lanes is not None,
            "--target": self.target != "embedded",
            "--switch-ca": self.switch_ca is not None,
        }
        if self.cluster is None and any(of_cluster.values()):
            option = next(option for option, given in of_cluster.items() if given)
            raise Failure(
                f"{option} needs --cluster: 'ina topo up' sets it for the switches of a testbed", USAGE
            )
        refuse(self.target not in ("embedded", "bmv2"), f"--target {self.target}: want embedded or bmv2")
        refuse(
            self.launched not in ("local", "ssh", "slurm", "ray"),
            f"--executor {self.launched}: want local, ssh, slurm or ray",
        )
        refuse(self.licence and self.launched != "slurm", f"--licence {self.licence} needs --executor slurm")
        refuse(self.log not in ("text", "json"), f"--log {self.log}: want text or json")

    @property
    def launched(self) -> str:
        """Kind of the executor: the option, or local on a testbed, and ssh on a cluster."""
        return self.executor or ("local" if self.cluster is None else "ssh")


def controller(context: typer.Context, asked: ControllerSettings) -> None:
    """Serve the jobs of many people on a cluster's servers and switches; see docs/guides/controller.md."""
    if context.invoked_subcommand is not None:
        return
    if asked.state is None:
        raise Failure("--state is missing: give --state DIR, where the controller keeps its state", USAGE)
    asked.check()
    with quickly():
        from ina.cli.service.serving import serve
    serve(asked, asked.state.absolute())  # its processes have other working directories


app = group(
    "controller",
    "Serve the jobs of many people on a cluster's servers and switches; see docs/guides/controller.md.",
    epilog="""Examples:

  ina controller --state /var/lib/ina --testbed lab

  INA_TOKEN=$(cat secret) ina controller --state /var/lib/ina --cluster lab.toml

  ina controller --state state --memory deadline-lazy --routing grid

  ina controller token add alice --state /var/lib/ina

  ina controller backup ina.backup --state /var/lib/ina

  ina controller --state /var/lib/ina --listen 10.0.0.1:9580 --tls-cert cert.pem --tls-key key.pem
""",
)
app.callback(invoke_without_command=True)(for_typer(controller))
_tokens = group(
    "token",
    "Add, list and remove the tokens of tenants.",
    epilog="""Examples:

  ina controller token add alice --state /var/lib/ina

  ina controller token add admin --role operator --state /var/lib/ina > admin.token

  ina controller token remove alice --state /var/lib/ina
""",
)
register(app, "token", _tokens, "Add, list and remove the tokens of tenants.")
for _group, _name, _place, _line in (
    (_tokens, "add", "service.state:add", "Add a token for a tenant, and print it."),
    (_tokens, "list", "service.state:list_", "List the tenants that have tokens, and their roles."),
    (_tokens, "remove", "service.state:remove", "Remove a tenant's token; it is refused at once."),
    (
        app,
        "backup",
        "service.state:backup",
        "Copy a state with its tokens into one file, also while a controller uses the state.",
    ),
    (
        app,
        "restore",
        "service.state:restore",
        "Replace a state with a backup, while no controller uses it; the old state is kept beside it.",
    ),
    (
        app,
        "adopt",
        "service.state:adopt",
        "Continue from a state that has lost its latest events, as after 'restore'.",
    ),
    (
        app,
        "forget",
        "service.state:forget",
        "End all runs of a state, and begin with an empty one; the old state is kept beside it.",
    ),
):
    register(_group, _name, _place, _line)
