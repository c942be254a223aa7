"""``ina host`` and ``ina doctor``: describe a machine for a cluster file; check whether jobs can run."""

from __future__ import annotations

import socket
from dataclasses import asdict
from typing import Annotated, Literal

from hostlib.io.interfaces import Interface, interfaces
from ina.cli import options
from ina.cli.cluster_options import ClusterFile, cluster_of, ranks_on, required
from ina.cli.command import USAGE, Declared, Failure, Json, Reply, Result, plural, rate, refuse, say
from ina.cli.run_options import FabricOptions, SwitchOptions
from ina.doctor.doctor import examine
from ina.run.launch.spec import SSH


def host(
    *,
    switch: Annotated[
        str | None,
        Declared(metavar="NAME", help="Give the name of the switch that this machine is plugged into."),
    ] = None,
    port: Annotated[int | None, Declared(min=1, max=510, help="Give the port of that switch.")] = None,
    interface: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            help="Use this interface. Default: the only one that is up and has an IPv4 address.",
        ),
    ] = None,
    name: Annotated[
        str | None, Declared(metavar="NAME", help="Name the machine. Default: its host name.")
    ] = None,
    form: Annotated[
        Literal["toml", "yaml"], Declared("--format", help="Print lines for a file of this format.")
    ] = "toml",
) -> Reply:
    """Print this machine's lines of a cluster file: its name, interface and addresses.

    Append the lines to the cluster file. The machine cannot find out to which port of which switch it is
    connected: give the switch and the port with --switch and --port, or add them to the file by hand.

    Examples:
        ina host --switch s1 --port 3 >> cluster.toml

        ina host --switch s1 --port 3 --interface eth1 --format yaml
    """
    found = _chosen(interface, interfaces())
    lines: dict[str, str | int] = {"name": name or socket.gethostname()}
    lines |= {"switch": switch} if switch else {}
    lines |= {"port": port} if port else {}
    lines |= {"ip": found.ip, "mac": found.mac, "interface": found.name}
    quoted = {key: value if isinstance(value, int) else f'"{value}"' for key, value in lines.items()}
    if form == "toml":
        text = "\n".join(["\n[[server]]", *(f"{key} = {value}" for key, value in quoted.items())])
    else:
        text = "- " + "\n  ".join(f"{key}: {value}" for key, value in quoted.items())
    return Reply(Result("host", dict(lines), {"mtu": found.mtu}), [text])


def _chosen(name: str | None, known: tuple[Interface, ...]) -> Interface:
    """Return the interface that leads to the switch. Raises Failure."""
    usable = [each for each in known if each.ip and each.up and not each.loopback]
    shown = ", ".join(f"{each.name} ({each.ip})" for each in usable) or "none"
    if name is not None:
        found = [each for each in usable if each.name == name]
        if not found:
            exists = any(each.name == name for each in known)
            why = "is down, or has no IPv4 address" if exists else "is not there"
            raise Failure(f"--interface {name!r} {why}; want one of {shown}", exit_code=USAGE)
        return found[0]
    refuse(
        len(usable) != 1, f"cannot tell which interface leads to the switch: give --interface, one of {shown}"
    )
    return usable[0]


def doctor(
    *,
    cluster: ClusterFile = None,
    hosts: Annotated[
        str | None,
        Declared(metavar="NAME,…|FILE", help="Examine these machines. Default: all workers' machines."),
    ] = None,
    launch_with: Annotated[
        str,
        Declared(metavar="TEMPLATE", help="Start processes on a machine with this command."),
    ] = SSH,
    json: Json = False,
    tls: options.TlsOptions,
) -> Reply:
    """Examine a cluster, and report each problem with its remedy.

    Asks every switch for its program, and every machine for its interfaces, clock, version and limits. Then
    runs small jobs on each machine, on all machines, and with the fallback server, and reports how far the
    packets of a failing job get. Exits with status 1 if jobs cannot run. Needs the INA_TOKEN of
    'ina fallback --serve'.

    Examples:
        ina doctor --cluster lab.yaml

        ina doctor --cluster lab.yaml --hosts n1,n2 --launch-with 'srun -w {host} {command}' --json
    """
    path = required(cluster, "ina doctor")
    switches = FabricOptions(switches=SwitchOptions(), tls=tls, faults=options.FaultOptions())
    running = cluster_of(path, switches.fabric(cluster=True), switches)
    names = ranks_on(hosts, None).machines if hosts else running.topology.servers_for("worker")
    if unknown := [name for name in names if name not in running.topology.server]:
        raise Failure(f"--hosts: machine {unknown[0]!r} is not in {path}", exit_code=USAGE)
    found = examine(running, names, launch_with, lambda text: None if json else say(f"ina: {text}"))
    report = {
        "name": "doctor",
        "healthy": found.healthy,
        "findings": [asdict(each) for each in found.findings],
        "goodputs_bps": found.goodputs_bps,
    }
    lines = [f"{machine}: sums {rate(goodput)}" for machine, goodput in found.goodputs_bps.items()]
    lines += [f"{each.where}: {each.what}\n    remedy: {each.remedy}" for each in found.findings]
    broken = sum(not each.harmless for each in found.findings)
    failure = "" if found.healthy else f"{plural(broken, 'problem')} that prevent jobs from running"
    return Reply(report, lines, failure)
