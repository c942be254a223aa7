"""What the commands of ``ina schedule`` share: options, checks before a run, and progress bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from controller.cli.errors import FAILED, USAGE, Failure
from controller.cli.output import err, out
from controller.scheduling import BadSpec, Cluster
from controller.simulator import runs
from controller.simulator.clusters import read_cluster, uniform
from controller.simulator.families.base import SimulationConfig
from controller.simulator.plots import FORMATS, PlotsMissing, check
from controller.simulator.policies import check_settings, known, parse_setting
from controller.simulator.runs import LARGEST_SEED, Source, kind_for, known_to
from controller.simulator.traces import READERS

CLUSTER = "Cluster"
PROFILES = "What was measured of the models"

Policy = Annotated[str, typer.Option(metavar="NAME", help="One policy; 'ina schedule policies' lists them.")]
Policies = Annotated[
    str, typer.Option(metavar="NAMES", help="Policies, by comma; 'ina schedule policies' lists them.")
]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The jobs, from a file: CSV, TOML or a public trace; its first line tells the format.",
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of all that is made up: jobs, profiles, trees.")
]
Load = Annotated[
    float | None,
    typer.Option(
        metavar="FACTOR",
        help="How much work generated jobs bring, 1: all that the cluster can do (default 1.2);"
        " how many times as fast a trace's jobs arrive (default 1).",
    ),
]
Nodes = Annotated[int, typer.Option(min=1, rich_help_panel=CLUSTER, help="Servers.")]
Gpus = Annotated[int, typer.Option(min=1, rich_help_panel=CLUSTER, help="GPUs per server.")]
ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        metavar="FILE",
        rich_help_panel=CLUSTER,
        help="Servers from a file (TOML or CSV) instead.",
    ),
]
CpusPerGpu = Annotated[float, typer.Option(rich_help_panel=CLUSTER, help="CPUs per GPU.")]
MemoryPerGpu = Annotated[float, typer.Option(metavar="GB", rich_help_panel=CLUSTER, help="Memory per GPU.")]
Format = Annotated[str, typer.Option(help=f"Format of the trace: {', '.join(READERS)}.")]
Matrix = Annotated[
    Path | None,
    typer.Option(metavar="FILE", rich_help_panel=PROFILES, help="Sensitivity matrices, for synergy…"),
]
Profiles = Annotated[
    Path | None,
    typer.Option(metavar="FILE", rich_help_panel=PROFILES, help="Usage of configurations, for lucid…"),
]
Pairs = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=PROFILES,
        help="Speeds of measured pairs, for lucid… and sharing; the latter takes Gavel's JSON too.",
    ),
]
Estimates = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=PROFILES,
        help="How long the jobs of a trace are expected to run: columns job_id and estimate_s (or priority).",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="What policies go by; 'ina schedule policies --all' lists what there is. Again for others.",
    ),
]
Processes = Annotated[int, typer.Option(min=0, help="Simulations at once; 0: as many as there are cores.")]


def parse_policies(text: str) -> list[str]:
    """Split the names that were given to ``--policy``. Raises Failure."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise Failure("--policy: no policy; 'ina schedule policies' lists them", USAGE)
    for name in names:
        if name not in known():
            raise Failure(f"policy {name!r} is unknown; 'ina schedule policies --all' lists them", USAGE)
        if names.count(name) > 1:
            raise Failure(f"policy {name!r} is there twice", USAGE)
    return names


def parse_policy(text: str) -> str:
    """Return the one name that was given to ``--policy``. Raises Failure."""
    name, *others = parse_policies(text)
    if others:
        raise Failure(f"--policy {text}: want one", USAGE)
    return name


def cluster_of(
    path: Path | None, nodes: int, gpus: int, cpus_per_gpu: float, memory_per_gpu: float
) -> Cluster:
    """Return the cluster that the options describe. Raises BadSpec or BadTrace."""
    if path is not None:
        return read_cluster(path)
    return uniform(nodes, gpus, cpus=gpus * cpus_per_gpu, memory_gb=gpus * memory_per_gpu)


def config(
    cluster: Cluster,
    matrix: Path | None,
    profiles: Path | None,
    pairs: Path | None,
    seed: int,
    estimates: Path | None,
    settings: Sequence[str] | None,
    policies: Sequence[str],
) -> SimulationConfig:
    """Return what policy runs of these policies are made for. Raises Failure."""
    try:
        chosen = tuple(parse_setting(text) for text in settings or ())
        check_settings(chosen, policies)
    except BadSpec as error:
        raise Failure(f"--set: {error}", USAGE) from error
    try:
        return SimulationConfig(cluster, matrix, profiles, pairs, seed, estimates, chosen)
    except BadSpec as error:
        raise Failure(f"--profiles, --pairs: {error}", USAGE) from error


def offered(
    policies: Sequence[str],
    around: SimulationConfig,
    trace: Path | None,
    format: str,
    generated: int,
    *,
    load: float | None = None,
    seed: int = 0,
) -> tuple[Source, int]:
    """Return where the policies' jobs come from, and how many there are.

    All are looked at, so that what is wrong with them is said once, before any process is there. Raises what
    `refusals` passes on.
    """
    if trace is None:
        source = Source(None, format, generated, 1.2 if load is None else load, seed, kind_for(policies))
        return source, len(source.jobs(around))
    source = Source(trace, format, generated, 1.0 if load is None else load, seed)
    return source, len(source.jobs(around, known_to(policies, around)))


@contextmanager
def refusals() -> Iterator[None]:
    """Fail as a command does for what the schedulers' parts refuse: status 2 if it was asked for, else 1."""
    try:
        with runs.refusals():
            yield
    except runs.RunFailed as error:
        raise Failure(str(error), USAGE if error.usage else FAILED) from error


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, folded: str = "") -> None:
    """Print a table that cuts nothing off: a narrow terminal folds the column `folded`, or wraps all.

    A cell may have several lines; then lines go between the rows.
    """
    out.print(title, style="bold", highlight=False, soft_wrap=True)
    view = Table(show_lines=any("\n" in cell for row in rows for cell in row))
    widths = [
        max(cell_len(line) for cell in cells for line in cell.split("\n"))
        for cells in zip(columns, *rows, strict=True)
    ]
    least = [min(width, 16) if name == folded else width for name, width in zip(columns, widths, strict=True)]
    for number, (column, width) in enumerate(zip(columns, least, strict=True)):
        text = number == 0 or column == folded or view.show_lines
        view.add_column(column, justify="left" if text else "right", min_width=width, overflow="fold")
    for row in rows:
        view.add_row(*row)
    frame = 3 * len(columns) + 1
    wide = max(out.width, sum(least) + frame) if out.is_terminal else sum(widths) + frame
    Console(width=wide, markup=False, emoji=False).print(view)


def check_plots(option: str, path: Path | None = None) -> None:
    """Refuse before the run what would fail after it: a plot's format, or that there is no matplotlib."""
    if path is not None and path.suffix not in FORMATS:
        raise Failure(f"{option} {path}: want a name that ends in {', '.join(FORMATS)}", USAGE)
    try:
        check()
    except PlotsMissing as error:
        raise Failure(f"{option}: {error}") from error


class Bars:
    """Progress bars, on a terminal only: one for each task, or one for all."""

    def __init__(self, names: Sequence[str], *, together: str = "") -> None:
        self.shown = err.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        self._parts = [0.0] * len(names)
        self._tasks = [
            self._progress.add_task(name, total=1.0 if not together else len(names))
            for name in ([together] if together else names)
        ]

    def update(self, number: int, fraction: float) -> None:
        """Show that so much of a task is done."""
        self._parts[number] = fraction
        if len(self._tasks) == len(self._parts):
            self._progress.update(self._tasks[number], completed=fraction)
        else:
            self._progress.update(self._tasks[0], completed=sum(self._parts))

    def __enter__(self) -> Self:
        if self.shown:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown:
            self._progress.stop()
