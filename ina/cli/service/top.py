"""``ina top``: a controller on one screen."""

from __future__ import annotations

import json as json_module
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ina.cli import options
from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, clock, plain, rows

if TYPE_CHECKING:
    from ina.service.views import ClusterView, JobView, SwitchView

EPILOG = """Examples:

  ina top --controller http://127.0.0.1:9580

  ina top --json
"""


def top(
    *,
    every: Annotated[
        float, typer.Option("--every", min=0.2, metavar="SECONDS", help="Ask again at this interval.")
    ] = 1.0,
    at: ControllerOptions,
    json: options.Json = False,
) -> None:
    """Show a controller's switches, servers and jobs, until interrupted.

    Prints them once where standard output is not a terminal, or with --json.
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
