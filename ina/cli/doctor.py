"""``ina doctor``: what is wrong with a cluster, and what to do about it."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from ina.cli import options
from ina.cli.cluster_options import ClusterFile, cluster_of, ranks_on, required
from ina.cli.errors import Failure
from ina.cli.plain import plural, rate, say
from ina.cli.run_options import FaultOptions, SwitchOptions, fabric_of
from ina.runtime.agents import SSH
from ina.runtime.doctor import examine, shown

EPILOG = """Examples:

  ina doctor --cluster lab.yaml

  ina doctor --cluster lab.yaml --hosts n1,n2 --launch-with 'srun -w {host} {command}' --json
"""


def doctor(
    *,
    cluster: ClusterFile = None,
    hosts: Annotated[
        str | None,
        typer.Option(metavar="NAME,…|FILE", help="Examine these machines. Default: all workers' machines."),
    ] = None,
    launch_with: Annotated[
        str,
        typer.Option(metavar="TEMPLATE", help="Start on a machine with this command, as 'ina run --hosts'."),
    ] = SSH,
    json: options.Json = False,
    tls: options.TlsOptions,
) -> None:
    """Examine a cluster, and say what to mend.

    Asks every switch, and every machine for its interfaces, clock, version and limits. Then sums on each
    machine, on all together, and in the fallback server, and says for each failure how far packets come.
    Exits with 1 if jobs cannot run. Needs INA_TOKEN, as 'ina fallback --serve' has it.
    """
    path = required(cluster, "ina doctor")
    switches = SwitchOptions()
    fabric = fabric_of(None, None, switches, tls, FaultOptions(), cluster=True)
    running = cluster_of(path, fabric, switches, tls)
    names = ranks_on(hosts, None).machines if hosts else running.topology.servers_for("worker")
    if unknown := [name for name in names if name not in running.topology.server]:
        raise Failure(f"--hosts: machine {unknown[0]!r} is not in {path}", exit_code=2)
    found = examine(running, names, launch_with, lambda text: None if json else say(f"ina: {text}"))
    if json:
        report = {
            "name": "doctor",
            "healthy": found.healthy,
            "findings": list(shown(found)),
            "goodputs_bps": found.goodputs_bps,
        }
        print(json_module.dumps(report, indent=2))
    else:
        for machine, goodput in found.goodputs_bps.items():
            print(f"{machine}: sums {rate(goodput)}")
        for each in found.findings:
            print(f"{each.where}: {each.what}\n    to mend it: {each.remedy}")
    if not found.healthy:
        broken = [each for each in found.findings if not each.harmless]
        raise Failure(f"{plural(len(broken), 'finding')} that jobs cannot run with")
