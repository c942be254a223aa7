"""Examination of a cluster: its switches, its machines, the paths between them, and the fallback server."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from controller import ControllerError, connect
from controller.errors import ProgramMismatch
from controller.switches.model import INA_UDP_PORT, SwitchInfo
from controller.vocabulary import Job, Topology
from hostlib.launch import command_line
from hostlib.launch.launcher import LaunchError
from hostlib.version import version
from ina.doctor.checkup import Finding, of_machine, of_silence, of_speeds
from ina.doctor.machine_facts import MachineFacts
from ina.errors import BadRun, RunError
from ina.launch.agents import launch_command
from ina.launch.machine_hosts import reached_at
from ina.launch.plain import record_of
from ina.launch.spec import NAMELESS, ClusterSpec, FabricSpec, LaunchSpec
from ina.service.live import WorkerOptions, run_on
from ina.switches.cluster_fabric import address_of, opened, server_for

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
        told = list(threads.map(lambda name: _facts(topology, name, launch_with), machines))
    good = []
    for name, (facts, asked) in zip(machines, told, strict=True):
        if isinstance(facts, Finding):
            found.findings.append(facts)
            continue
        lanes = offers.lanes if offers else 0
        own = list(of_machine(topology, name, facts, version=version(), lanes=lanes, asked=asked))
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
        each for each in offers.values() if not all(_alike(each, other) for other in offers.values())
    ]
    if different:
        what = f"run different programs: {', '.join(each.title for each in different)}"
        found.findings.append(Finding("switches", what, "load the same program on all switches"))
        return None
    return offers.get(cluster.topology.root) if len(offers) == len(cluster.topology.switch) else None


def _alike(one: SwitchInfo, other: SwitchInfo) -> bool:
    """Return whether two programs offer the same lanes, slots and features to jobs."""
    return one.covers(other) and other.covers(one)


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
        said = done.stdout.strip().splitlines()
        facts: MachineFacts | Finding = record_of(MachineFacts, json.loads(said[-1] if said else ""))
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
    said: list[str] = []
    errors: list[str] = []

    def on_output(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
        (errors if is_error else said).extend(data.decode(errors="replace").splitlines())

    before = _refused(cluster)
    try:
        with opened(FabricSpec(), cluster, machines, launch_with) as fabric:
            (end,), interrupt = run_on(fabric, [spec], WorkerOptions(on_output=on_output))
            if interrupt is not None:
                raise interrupt
        failure = end.failure()
    except (RunError, ControllerError, LaunchError) as error:
        failure, end = error, None
    if failure is None:
        speeds = [json.loads(line)["goodput_bps"] for line in said]
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


def shown(found: Examination) -> Iterator[dict[str, Any]]:
    """Yield the findings as dictionaries, for JSON."""
    for each in found.findings:
        yield {"where": each.where, "what": each.what, "remedy": each.remedy, "harmless": each.harmless}
