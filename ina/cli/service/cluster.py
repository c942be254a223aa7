"""Commands for a controller's cluster: top, drain, undrain, quota, reallocate, reload, audit."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ina.cli.command import Declared, Failure, Json, Listing, Reply, plural, refuse
from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, clock, plain, rows

if TYPE_CHECKING:  # other commands need no HTTP
    from ina.run.views import ClusterView, JobView, SlotsView, SwitchView

Nodes = Annotated[
    list[str], Declared(argument=True, metavar="NODE …", help="Drain or undrain these servers or switches.")
]


def drain(nodes: Nodes, *, at: ControllerOptions) -> None:
    """Drain servers or switches: nothing new starts there, and jobs that use them are moved, or wait.

    Examples:
        ina drain s2 --controller http://127.0.0.1:9580

        ina drain h1 h2
    """
    _drain(at, nodes, back=False)


def undrain(nodes: Nodes, *, at: ControllerOptions) -> None:
    """Undrain servers or switches: jobs may use them again.

    Examples:
        ina undrain s2 --controller http://127.0.0.1:9580
    """
    _drain(at, nodes, back=True)


def _drain(at: ControllerOptions, nodes: Sequence[str], *, back: bool) -> None:
    """Drain the nodes; with `back`, undrain them. Raises Failure for an invalid node before any changes."""
    with at.connect() as controller:
        cluster = controller.cluster()
        down = {node["name"]: node["down"] for node in (*cluster["servers"], *cluster["switches"])}
        if unknown := [node for node in nodes if node not in down]:
            names = ", ".join(map(repr, unknown))
            raise Failure(f"the cluster has no server or switch {names}; nothing is done")
        if back and (used := [node for node in nodes if not down[node].startswith("drained")]):
            raise Failure(f"{', '.join(map(repr, used))}: not drained; nothing is done")
        for node in dict.fromkeys(nodes):
            controller.drain(node, back=back)
            out.print(f"{plain(node)}: {'in use' if back else 'drained'}", soft_wrap=True)


def quota(
    tenant: Annotated[
        str | None,
        Declared(argument=True, metavar="[TENANT]", help="Show or change the quota of this tenant only."),
    ] = None,
    *,
    gpus: Annotated[
        int | None,
        Declared(min=0, metavar="N", help="Limit the tenant to N GPUs at once; further jobs wait."),
    ] = None,
    reserved: Annotated[
        int | None, Declared(min=0, metavar="N", help="Keep N GPUs free of other tenants' jobs.")
    ] = None,
    per_minute: Annotated[
        int | None,
        Declared(min=1, metavar="N", help="Limit the tenant to N submitted jobs per minute."),
    ] = None,
    remove: Annotated[bool, Declared("--remove", help="Remove the tenant's quota.")] = False,
    at: ControllerOptions,
) -> Reply:
    """Show, set or remove quotas and reservations of tenants.

    Jobs above a quota wait, and 'ina explain' says so. Submissions above a limit per minute are refused, with
    the time after which to submit again. A command with --gpus, --reserved or --per-minute replaces the whole
    quota: GPUs and submissions that it does not limit are unlimited, and without --reserved no GPUs are
    reserved. Only operators may set and remove quotas.

    Examples:
        ina quota --controller http://127.0.0.1:9580

        ina quota alice --gpus 8 --reserved 4 --per-minute 30

        ina quota alice --remove
    """
    sets = any(value is not None for value in (gpus, reserved, per_minute))
    refuse(
        tenant is None and (sets or remove), "TENANT is missing: give the tenant whose quota to set or remove"
    )
    refuse(sets and remove, "--remove and --gpus, --reserved or --per-minute are mutually exclusive")
    with at.connect() as controller:
        if tenant is not None and remove:
            controller.remove_quota(tenant)
        if tenant is not None and sets:
            controller.set_quota(tenant, gpus=gpus, reserved=reserved or 0, per_minute=per_minute)
        found = [each for each in controller.quotas() if tenant in (None, each["tenant"])]
    if tenant is not None and remove:
        return Reply({"quotas": found}, [f"{plain(tenant)}: quota removed"])
    cells = [
        [
            plain(each["tenant"]),
            each["used"],
            "no limit" if each["gpus"] is None else each["gpus"],
            each["reserved"],
            "no limit" if each["per_minute"] is None else each["per_minute"],
            ", ".join(map(plain, each["waiting"])),
        ]
        for each in found
    ]
    columns = ["tenant", "GPUs in use", "at most", "reserved", "jobs a minute", "waiting"]
    return Reply({"quotas": found}, [Listing(plural(len(cells), "quota"), columns, cells)])


def reallocate(
    job: Annotated[
        str,
        Declared(
            argument=True, metavar="[JOB]", help="Print this job only; memory is divided among all jobs."
        ),
    ] = "",
    *,
    at: ControllerOptions,
) -> Reply:
    """Divide the memory of the switches now, and print the jobs whose slots changed, with the reason.

    A controller divides memory by itself when jobs start, end or move, and every --period seconds. Jobs move
    to their new slots while they run. Only operators may do this.

    Examples:
        ina reallocate --controller http://127.0.0.1:9580

        ina reallocate train --json
    """
    with at.connect() as controller:
        found = controller.reallocate(job)
    shown = [each for each in found["jobs"] if each["changed"] or job]
    same = len(found["jobs"]) - len(shown)
    if not shown:
        return Reply({**found}, [f"all slots are unchanged: {plural(same, 'job')}"])
    columns = ("job", "before", "now", "why")
    cells = [
        [plain(each["job"]), _shown(each["before"]), _shown(each["after"]), plain(each["why"])]
        for each in shown
    ]
    more = f"; {same} more have the same slots as before" if same else ""
    return Reply({**found}, [Listing(f"{plural(len(cells), 'job')}{more}", columns, cells, left=columns)])


def _shown(slots: Mapping[str, SlotsView]) -> str:
    found = [f"{at}: {each['slots']} from {each['first']}" for at, each in sorted(slots.items())]
    return ", ".join(found) or "none"


def reload(*, at: ControllerOptions) -> Reply:
    """Reload a controller's --cluster and --policies files, and print the differences.

    Jobs on servers and switches that stay run on; other jobs are moved, or wait. A file with an error changes
    nothing. Only operators may do this.

    Examples:
        ina reload --controller http://127.0.0.1:9580

        ina reload --json
    """
    with at.connect() as controller:
        found = controller.reload()
    policies = ", ".join(f"{kind} {name}" for kind, name in found["policies"].items())
    changes = found["cluster"] or ["the cluster has not changed"]
    return Reply({**found}, [*map(plain, changes), f"policies: {plain(policies)}"])


def audit(*, at: ControllerOptions) -> Reply:
    """Compare a controller's desired state with the state of its switches and servers.

    Exits with status 1 if they differ, or if a switch could not be read.

    Examples:
        ina audit --controller http://127.0.0.1:9580

        ina audit --json
    """
    with at.connect() as controller:
        found = controller.audit()
    if found["clean"]:
        return Reply({**found}, ["all switches and servers hold the desired state, and nothing else"])
    cells = [[plain(each["where"]), plain(each["what"])] for each in found["found"]]
    cells += [[name, f"could not be read: {plain(why)}"] for name, why in found["left_out"].items()]
    differences = plural(len(cells), "difference")
    columns = ("where", "what")
    return Reply(
        {**found},
        [Listing(differences, columns, cells, left=columns)],
        failure=f"the audit found {differences}",
    )


# --------------------------------------------------------------------------- a controller on one screen


def top(
    *,
    every: Annotated[
        float, Declared("--every", min=0.2, metavar="SECONDS", help="Refresh at this interval.")
    ] = 1.0,
    at: ControllerOptions,
    json: Json = False,
) -> None:
    """Show a controller's switches, servers and jobs, until interrupted.

    Prints them once if standard output is not a terminal, or with --json.

    Examples:
        ina top --controller http://127.0.0.1:9580

        ina top --json
    """
    with at.connect() as controller:
        if json:
            print(json_module.dumps({"cluster": controller.cluster(), "jobs": controller.jobs()}, indent=2))
            return
        if not out.is_terminal:
            out.print(_screen(controller.cluster(), controller.jobs()))
            return
        with Live(console=out, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_screen(controller.cluster(), controller.jobs()), refresh=True)
                time.sleep(every)


def _screen(cluster: ClusterView, jobs: list[JobView]) -> Group:
    now_s = cluster["now_s"]
    active = [job for job in jobs if not job["over"]]
    running = sum(job["state"] == "running" for job in active)
    policies = ", ".join(f"{kind} {name}" for kind, name in cluster["policies"].items())
    head = Text(
        f"up {clock(now_s)}; {running} running, {len(active) - running} waiting,"
        f" {len(jobs) - len(active)} over; {policies}"
    )
    nodes = Table("node", "use", "", "jobs", box=None, pad_edge=False)
    for switch in cluster["switches"]:
        used = switch["slots"] - switch["free"]
        nodes.add_row(*_node(switch["name"], used, switch["slots"], "slots", _names(switch), switch["down"]))
    for server in cluster["servers"]:
        names = [plain(name) for name in server["jobs"]]
        nodes.add_row(*_node(server["name"], server["used"], server["gpus"], "GPUs", names, server["down"]))
    columns, lines = rows(active[: max(5, out.height - nodes.row_count - 6)], now_s)
    listed = Table(*columns, box=None, pad_edge=False)
    for line in lines:
        listed.add_row(*map(Text, line))
    return Group(head, Text(), nodes, Text(), listed)


def _names(switch: SwitchView) -> list[str]:
    return [plain(share["job"]) or "another tenant's" for share in switch["shares"]]


def _node(name: str, used: int, whole: int, unit: str, jobs: list[str], down: str) -> tuple[Text, ...]:
    width = 20
    full = round(width * used / whole) if whole else 0
    text = f"down: {plain(down)}" if down else ", ".join(jobs)
    cells = (name, "█" * full + "·" * (width - full), f"{used} of {whole} {unit}", text)
    return tuple(Text(cell) for cell in cells)
