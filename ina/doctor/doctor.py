"""Examination of a cluster: its switches, its machines, the paths between them, and the fallback server."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from controller import ControllerError, ProgramMismatch, connect
from controller.switches.model import INA_UDP_PORT, SwitchInfo
from controller.vocabulary import Job, Topology
from hostlib.launch import command_line
from hostlib.launch.launcher import LaunchError
from hostlib.version import version
from ina.doctor.machine_facts import MachineFacts
from ina.errors import BadRun, RunError
from ina.run.launch.agents import launch_command
from ina.run.launch.files import record_of
from ina.run.launch.machine_hosts import reached_at
from ina.run.launch.spec import NAMELESS, ClusterSpec, FabricSpec, LaunchSpec
from ina.run.live import WorkerOptions, run_on
from ina.run.switches.cluster_fabric import address_of, opened, server_for

HEADER_BYTES: Final = 20 + 8 + 28
"""Bytes of the IPv4, UDP and INA headers of a packet."""
CLOCK_S: Final = 5.0
"""Maximum difference of clocks, in seconds; a larger difference makes logs hard to compare."""
RECEIVE_BYTES: Final = 1 << 17
OPEN_FILES: Final = 256
SHARED_BYTES: Final = 32 << 20
SLOW: Final = 0.25
"""A machine is slow if its goodput is below this share of the median."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a switch or machine, and its remedy."""

    where: str
    """Name of the switch or machine."""
    what: str
    remedy: str
    harmless: bool = False
    """Whether jobs can run in spite of the fault, perhaps more slowly or with less useful messages."""


def of_machine(
    topology: Topology,
    machine: str,
    facts: MachineFacts,
    *,
    version: str,
    lanes: int,
    asked: tuple[float, float],
) -> Iterator[Finding]:
    """Yield the faults of one machine, without its paths to switches and other machines.

    Args:
        topology: The cluster file.
        machine: Name of the machine.
        facts: The machine's facts.
        version: Version of ina on this machine, where the doctor runs.
        lanes: Number of values in a packet.
        asked: Time on this machine's clock before and after the request for the facts.
    """
    if facts.version != version:
        yield Finding(
            machine,
            f"has ina {facts.version}, but this machine has {version}",
            "install the same version on all machines",
        )
    yield from _of_interface(topology, machine, facts, lanes)
    before, after = asked
    off = facts.time_s - (before + after) / 2
    checks = (
        (
            before - CLOCK_S <= facts.time_s <= after + CLOCK_S,
            f"its clock is {off:+.0f} s off this machine's clock",
            "set the same time server on all machines (NTP)",
            True,
        ),
        (
            facts.receive_bytes is None or facts.receive_bytes >= RECEIVE_BYTES,
            f"receive buffers of sockets hold {facts.receive_bytes} bytes at most",
            f"sysctl -w net.core.rmem_max={8 << 20}",
            True,
        ),
        (
            facts.open_files >= OPEN_FILES,
            f"a process may open only {facts.open_files} files",
            f"ulimit -n 4096; want {OPEN_FILES} or more",
            False,
        ),
        (
            facts.shared_bytes >= SHARED_BYTES,
            f"/dev/shm, in which the ranks of a machine sum, has only {facts.shared_bytes} bytes left",
            "make it larger: mount -o remount,size=1g /dev/shm",
            False,
        ),
        (facts.sealing, "the package cryptography is missing", "pip install 'ina[machines]'", True),
    )
    yield from (
        Finding(machine, what, remedy, harmless) for good, what, remedy, harmless in checks if not good
    )


def _of_interface(topology: Topology, machine: str, facts: MachineFacts, lanes: int) -> Iterator[Finding]:
    server, ip, mac = topology.server[machine], topology.ip(machine), topology.mac(machine)
    lines = "correct its lines in the cluster file: run 'ina host' on it, which prints them"
    named = [each for each in facts.interfaces if each.name == server.interface]
    having = [each for each in facts.interfaces if each.ip == ip]
    if server.interface and not named:
        present = ", ".join(each.name for each in facts.interfaces)
        yield Finding(machine, f"has no interface {server.interface}; it has {present}", lines)
        return
    if not having:
        present = ", ".join(each.ip for each in facts.interfaces if each.ip and not each.loopback)
        yield Finding(machine, f"has no interface with the address {ip}; it has {present or 'none'}", lines)
        return
    found = (named or having)[0]
    needed = HEADER_BYTES + 4 * lanes
    checks = (
        (found.ip == ip, f"the address {ip} belongs to {having[0].name}, not to {found.name}", lines),
        (
            found.mac.lower() == mac.lower(),
            f"{found.name} has the MAC address {found.mac}, but the cluster file says {mac}",
            lines,
        ),
        (found.up, f"{found.name} is down", f"ip link set {found.name} up"),
        (
            found.carrier or not found.up,
            f"{found.name} has no carrier",
            "check the cable, and the switch's port",
        ),
        (
            found.mtu >= needed,
            f"the MTU of {found.name} is {found.mtu}, and packets of {lanes} values have {needed} bytes",
            f"ip link set {found.name} mtu 1500, or use a program with fewer lanes",
        ),
        (
            not facts.port_taken,
            f"UDP port {INA_UDP_PORT} of {ip} cannot be used: {facts.port_taken}",
            f"end the process that uses it (find it with ss -ulpn 'sport = {INA_UDP_PORT}')",
        ),
    )
    yield from (Finding(machine, what, remedy) for good, what, remedy in checks if not good)


def of_silence(
    topology: Topology, machine: str, refused: Mapping[str, Mapping[str, int]], error: str
) -> Finding:
    """Return why a machine's packets get no answer, judged from counters of the switches.

    Args:
        topology: The cluster file.
        machine: Name of the machine.
        refused: Number of packets that each switch refused during the trial, by reason.
        error: The error message of the machine's rank.
    """
    switch = topology.rack_of[machine]
    port = topology.port_to(switch, machine)
    here, others = refused.get(switch, {}), {name: each for name, each in refused.items() if name != switch}
    if here.get("wrong_port"):
        return Finding(
            machine,
            f"its packets reach switch {switch}, but not at port {port}, its port in the cluster file",
            "correct its port in the cluster file, or plug its cable into the port given there",
        )
    for name, reasons in others.items():
        if reasons.get("unknown_job") or reasons.get("wrong_port"):
            return Finding(
                machine,
                f"its packets reach switch {name}, but the cluster file says {switch}",
                "correct its switch in the cluster file, or plug its cable into the switch given there",
            )
    reasons = {reason: count for reason, count in here.items() if count}
    if reasons:
        counted = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        return Finding(
            machine,
            f"switch {switch} refuses its packets: {counted}",
            "see docs/reference/protocol/switch.md",
        )
    return Finding(
        machine,
        f"none of its packets reach switch {switch} at port {port}, or no answer comes back ({error})",
        f"look for a firewall that drops UDP port {INA_UDP_PORT}, a VLAN, a wrong cable, or a switch's port "
        "that is down",
    )


def of_speeds(goodputs_bps: Mapping[str, float]) -> Iterator[Finding]:
    """Yield a finding for each machine whose goodput is far below the median of three or more machines."""
    if len(goodputs_bps) < 3:
        return
    usual = statistics.median(goodputs_bps.values())
    for machine, goodput in goodputs_bps.items():
        if goodput < SLOW * usual:
            yield Finding(
                machine,
                f"sums {goodput / 1e6:.1f} Mb/s, but the machines' median is {usual / 1e6:.1f} Mb/s",
                "check its link's rate and errors (ethtool, ip -s link), and its other processes",
                harmless=True,
            )


LOOK_S: Final = 30.0
"""Maximum time to wait for a machine's facts, in seconds."""
TIMEOUT_S: Final = 3.0
"""Time without an answer of the switch after which a trial job fails, in seconds."""
PORT_COUNTS: Final = ("wrong_port", "unknown_job", "wrong_epoch", "bad_version", "bad_lanes", "bad_length")
FALLBACK: Final = "fallback server"
Counts = Mapping[str, Mapping[str, int]]


@dataclass(slots=True)
class Examination:
    """Findings and measurements of an examination."""

    findings: list[Finding] = field(default_factory=list)
    goodputs_bps: dict[str, float] = field(default_factory=dict)
    """Goodput in bit/s of a job on each machine alone; under "all", of a job on all machines."""

    @property
    def healthy(self) -> bool:
        """Whether jobs can run on all machines."""
        return all(each.harmless for each in self.findings)


def examine(
    cluster: ClusterSpec, machines: Sequence[str], launch_with: str, on_step: Callable[[str], None]
) -> Examination:
    """Examine the switches of a cluster file, these machines, and the paths between them.

    Omits checks that must fail because of earlier findings.

    Args:
        cluster: The switches and machines.
        machines: Names of the machines.
        launch_with: Template of the command that runs a command on a machine, as 'ssh {host} {command}'.
        on_step: Called before each step, with a description of the step.
    """
    found, topology = Examination(), cluster.topology
    on_step("asking the switches")
    offers = _switches(cluster, found)
    on_step("asking the machines")
    with ThreadPoolExecutor(len(machines)) as threads:
        answers = list(threads.map(lambda name: _facts(topology, name, launch_with), machines))
    good = []
    for name, (facts, asked_at) in zip(machines, answers, strict=True):
        if isinstance(facts, Finding):
            found.findings.append(facts)
            continue
        lanes = offers.lanes if offers else 0
        own = list(of_machine(topology, name, facts, version=version(), lanes=lanes, asked=asked_at))
        found.findings += own
        good += [name] if all(each.harmless for each in own) else []
    if offers is None:
        return found
    # a machine that would have to be the fallback server of its own job is tried only together with others
    others = offers.shared and len(good) > 1
    together = [name for name in good if others and server_for(topology, [name]) is None]
    for name in [name for name in good if name not in together]:
        on_step(f"summing on {name}")
        _try(cluster, [name], launch_with, found)
        if any(each.where == FALLBACK for each in found.findings):
            return found
    working = [name for name in good if name in found.goodputs_bps or name in together]
    found.findings += of_speeds(found.goodputs_bps)
    if len(working) > 1:
        on_step(f"summing on {len(working)} machines")
        _try(cluster, working, launch_with, found)
    if offers.shared and working:
        on_step("summing in the fallback server")
        _try(cluster, working, launch_with, found, slots=0)
    return found


def _switches(cluster: ClusterSpec, found: Examination) -> SwitchInfo | None:
    """Ask all switches for their programs, and record faults.

    Returns what the programs offer to jobs; None if they differ, or a switch has no usable program.
    """
    offers: dict[str, SwitchInfo] = {}
    for name in cluster.topology.switch:
        try:
            address = address_of(cluster.topology, name)
            with connect(address, tls=cluster.tls) as controller:
                offers[name] = controller.info()
        except BadRun as error:
            found.findings.append(Finding(name, str(error), "add its p4runtime to the cluster file"))
        except ProgramMismatch as error:
            found.findings.append(Finding(name, str(error), "start it with --program shared or exclusive"))
        except ControllerError as error:
            found.findings.append(
                Finding(name, f"its P4Runtime does not answer: {error}", "start it, or correct its p4runtime")
            )
    different = [
        each
        for each in offers.values()
        if not all(each.covers(other) and other.covers(each) for other in offers.values())
    ]
    if different:
        what = f"run different programs: {', '.join(each.title for each in different)}"
        found.findings.append(Finding("switches", what, "load the same program on all switches"))
        return None
    return offers.get(cluster.topology.root) if len(offers) == len(cluster.topology.switch) else None


def _facts(
    topology: Topology, machine: str, launch_with: str
) -> tuple[MachineFacts | Finding, tuple[float, float]]:
    command = command_line.module("ina.doctor.machine_facts", topology.ip(machine), str(INA_UDP_PORT))
    argv = launch_command(launch_with, machine, reached_at(topology, machine), command)
    before = time.time()
    remedy = f"make this command work: {' '.join(argv[:4])} …"
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=LOOK_S, stdin=subprocess.DEVNULL, check=False
        )
        lines = done.stdout.strip().splitlines()
        facts: MachineFacts | Finding = record_of(MachineFacts, json.loads(lines[-1] if lines else ""))
    except OSError as error:
        facts = Finding(machine, f"no process can be started on it: {error.strerror}", remedy)
    except subprocess.TimeoutExpired:
        facts = Finding(machine, f"has not answered within {LOOK_S:g} s", remedy)
    except ValueError:
        why = (done.stderr.strip().splitlines() or [f"it printed {done.stdout.strip()[:80]!r}"])[-1]
        facts = Finding(machine, f"no process can be started on it: status {done.returncode}: {why}", remedy)
    return facts, (before, time.time())


def _try(
    cluster: ClusterSpec,
    machines: Sequence[str],
    launch_with: str,
    found: Examination,
    *,
    slots: int | None = None,
) -> None:
    """Run a job with one rank on each of these machines, and record its goodput, or why it failed."""
    command = tuple(command_line.module("ina.doctor.probe"))
    spec = LaunchSpec(
        job=Job(name=NAMELESS, workers=len(machines), slots=slots, command=command),
        timeout_s=TIMEOUT_S,
        straggler_timeout_s=4 * TIMEOUT_S,
        machines=tuple((rank,) for rank in range(len(machines))),
        places=tuple(machines),
    )
    lines: list[str] = []
    errors: list[str] = []

    def on_output(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
        (errors if is_error else lines).extend(data.decode(errors="replace").splitlines())

    before = _refused(cluster)
    try:
        with opened(FabricSpec(), cluster, machines, launch_with) as fabric:
            (end,) = run_on(fabric, [spec], WorkerOptions(on_output=on_output))
        failure = end.failure()
    except (RunError, ControllerError, LaunchError) as error:
        failure, end = error, None
    if failure is None:
        speeds = [json.loads(line)["goodput_bps"] for line in lines]
        found.goodputs_bps[_name(machines, slots)] = min(speeds, default=0.0)
        return
    why = next((line for line in reversed(errors) if "Error" in line or "Peer" in line), str(failure))
    if end is None or end.result is None:
        remedy = "run 'ina fallback --serve' on its machine, with the same INA_TOKEN, version and --lanes"
        where = FALLBACK if "fallback" in str(failure) else ", ".join(machines)
        finding = Finding(where, str(failure), remedy if "fallback" in str(failure) else "see the message")
        if finding not in found.findings:
            found.findings.append(finding)
    elif slots == 0:
        found.findings.append(
            Finding(
                FALLBACK,
                f"packets to it get no answer ({why})",
                f"look for a firewall that drops UDP port {INA_UDP_PORT}; check its port in the cluster file",
            )
        )
    elif len(machines) == 1:
        refused = _since(before, _refused(cluster))
        rack = cluster.topology.rack_of[machines[0]]
        of_job = {name: end.result.counters.get(name, 0) for name in PORT_COUNTS}
        refused[rack] = {name: refused.get(rack, {}).get(name, 0) + of_job[name] for name in PORT_COUNTS}
        found.findings.append(of_silence(cluster.topology, machines[0], refused, why))
    else:
        found.findings.append(
            Finding(", ".join(machines), f"cannot sum together ({why})", "check the links between switches")
        )


def _name(machines: Sequence[str], slots: int | None) -> str:
    if slots == 0:
        return "all, in the fallback server"
    return machines[0] if len(machines) == 1 else "all"


def _refused(cluster: ClusterSpec) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name in cluster.topology.switch:
        with connect(address_of(cluster.topology, name), tls=cluster.tls) as controller:
            found[name] = dict(controller.row_counters(0))
    return found


def _since(before: Counts, now: Counts) -> dict[str, dict[str, int]]:
    return {
        switch: {reason: count - before[switch].get(reason, 0) for reason, count in counts.items()}
        for switch, counts in now.items()
    }
