"""Every launcher on several machines: the same script, the same losses, and what a kill -9 of each part does.

Takes minutes, with ``--thorough``, and prints a table of what was seen. Without, there are two machines, and
a rank alone is killed, but none of torchrun or `ina run`: `test_clusters` kills theirs on four machines.
Launchers that are missing are left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import effort
from tests.extras import needs
from tests.system.cluster_managers import RAY, SLURM, Slurm, ray_on, slurm_on
from tests.system.clusters import NETNS, Cluster
from tests.system.command import FAMILY, PATIENCE_S, succeed
from tests.system.launches import HOSTS, MPIRUN, RANKS, WAYS, Launch, wait_for
from tests.system.test_clusters import ALONE

pytestmark = [*NETNS, needs("torch")]

LEASE_S = 4
BOUND_S = 60.0
"""Time within which all ranks have to end, the launcher, and then the job at the switches."""
GOES_ON_S = 12.0
"""A launch whose ranks train so long after a kill goes on: longer than any of the ranks' time-outs."""


class Engines:
    """What launchers need besides the machines, started when the first launch asks for it.

    It is of no test, whose processes end with it: made outside of all tests, it remembers whose it is.
    """

    def __init__(self, here: Cluster, folder: Path) -> None:
        self._family = os.environ.get(FAMILY, "")
        self._here = here
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._slurm: Slurm | None = None

    def ready(self, way: str) -> dict[str, str]:
        """Start what is not there; return the variables of the launcher's users."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(FAMILY, self._family)
            return self._ready(way)

    def _ready(self, way: str) -> dict[str, str]:
        here = self._here
        here.serve_fallback()
        if "srun" in way:
            if self._slurm is None:
                self._folder.mkdir()
                self._slurm = self._stack.enter_context(slurm_on(here, self._folder))
            self._slurm.mend()
            return self._slurm.variables
        if way == "Ray" and not all(here.mentioning(host, "raylet") for host in HOSTS):
            if self._slurm is not None:
                self._slurm.mend()  # it has no more jobs when its nodes are killed, too
            for host in HOSTS:
                here.signal_machine(host, signal.SIGKILL)
            ray_on(here, dict.fromkeys(HOSTS, 2))
        return {}

    def close(self) -> None:
        """End them."""
        self._stack.close()


@pytest.fixture(scope="module")
def engines(here: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    with contextlib.closing(Engines(here, tmp_path_factory.mktemp("engines") / "slurm")) as made:
        yield made


@pytest.fixture
def row(capsys: pytest.CaptureFixture[str]) -> Callable[[str, str, str], None]:
    """Print a row of the table: what was killed, the launcher, the outcome."""

    def write(*cells: str) -> None:
        with capsys.disabled():
            print(f"\n| {' | '.join(cells)} |", flush=True)

    return write


@pytest.fixture(scope="module")
def alone(here: Cluster) -> list[list[float]]:
    """Return the losses of each rank, as one process trains with the batches of all."""
    [said] = succeed([here.start("h1", [sys.executable, "-c", ALONE, str(RANKS)])], PATIENCE_S)
    found: list[list[float]] = json.loads(said)
    return found


def kill(processes: Sequence[int]) -> None:
    assert processes, "there is no such process"
    for process in processes:
        os.kill(process, signal.SIGKILL)


def machine_of(launch: Launch, rank: int) -> str:
    return (launch.folder / f"{rank}.pid").read_text().split()[1]


def ranks_on(launch: Launch, machine: str) -> set[int]:
    return {rank for rank in launch.ranks if machine_of(launch, rank) == machine}


@dataclass(frozen=True)
class Part:
    """What is killed, and what is to be said of it.

    Attributes:
        name: What it is.
        kill: Kills it; returns the ranks that go with it.
        named: What each other rank has to say, if the job ends; ``{ranks}`` stands for those, and
            ``{launcher}`` for the address of the first rank's machine.
        ends: Whether the job has to end; None: as the launcher has it.
    """

    name: str
    kill: Callable[[Launch], set[int]]
    named: str
    ends: bool | None = True
    but: Sequence[str] = ()
    """Launchers that have no such part."""
    stays: Sequence[str] = ()
    """Launchers that themselves wait for what they cannot hear: for how long is their own affair."""
    mute: Sequence[str] = ()
    """Launchers that go with it and take the ranks along: it may be that nobody is left to say anything."""


def a_rank(number: int) -> Callable[[Launch], set[int]]:
    def act(launch: Launch) -> set[int]:
        kill([launch.ranks[number]])
        return {number}

    return act


def a_machine(first: bool) -> Callable[[Launch], set[int]]:
    def act(launch: Launch) -> set[int]:
        machine = machine_of(launch, 0) if first else machine_of(launch, RANKS - 1)
        gone = ranks_on(launch, machine)
        launch.here.signal_machine(machine, signal.SIGKILL)
        return gone

    return act


def cut_off(launch: Launch) -> set[int]:
    """Cut the cable of a machine: nothing closes, as when it loses its power."""
    machine = machine_of(launch, RANKS - 1)
    launch.here.cable(machine, "down")
    return ranks_on(launch, machine)


def the_launcher(launch: Launch) -> set[int]:
    launch.processes[0].kill()
    return set()


def its_daemon(launch: Launch) -> set[int]:
    kill(launch.here.mentioning(machine_of(launch, RANKS - 1), launch.way.daemon))
    return set()


def the_holder(launch: Launch) -> set[int]:
    kill(launch.here.mentioning(machine_of(launch, 0), "ina admit"))
    return set()


def fallback(text: str) -> Callable[[Launch], set[int]]:
    def act(launch: Launch) -> set[int]:
        kill(launch.here.mentioning("p1", text))
        return set()

    return act


PARTS = (
    Part(
        *("a rank", a_rank(RANKS - 1), "lost rank.* {ranks}"),
        but=() if effort.THOROUGH else ("torchrun", "ina run"),
    ),
    Part("the first rank", a_rank(0), "lost rank.* {ranks}"),
    Part("a machine", a_machine(first=False), "lost rank.* {ranks}"),
    Part(
        "a machine's cable",
        cut_off,
        "lost rank.* {ranks}|the launcher at {launcher} has not answered",
        stays=("srun", "ina run by srun"),
    ),
    Part(
        "the launcher",
        the_launcher,
        "lost rank|PeerLost|JobFault|connection",
        ends=None,
        mute=("srun", "mpirun", "ina run", "ina run by srun", "Ray"),
    ),
    Part("the launcher's process on a machine", its_daemon, "lost rank|PeerLost|JobFault", ends=None),
    Part("ina admit", the_holder, "PeerLost|JobFault", but=("ina run", "ina run by srun")),
    Part("the fallback server's process", fallback("fallback --transport"), "", ends=False),
    Part("the fallback server with its service", fallback("ina fallback"), "fallback server on p1"),
    Part(
        "the first rank's machine",
        a_machine(first=True),
        "lost rank.* {ranks}|the launcher at {launcher} went away",
        mute=("ina run", "ina run by srun"),
    ),
)
HAVE = {"torchrun": True, "ina run": True, "srun": SLURM, "ina run by srun": SLURM}
HAVE |= {"mpirun": bool(MPIRUN), "Ray": RAY}


@pytest.mark.parametrize("way", [name for name in WAYS if HAVE[name]])
class TestLauncher:
    """All launches of one launcher after each other: its engine is started once."""

    def test_the_same_script_has_the_same_losses(
        self,
        here: Cluster,
        engines: Engines,
        alone: list[list[float]],
        row: Callable[[str, str, str], None],
        tmp_path: Path,
        way: str,
    ) -> None:
        launch = Launch.of(here, WAYS[way], tmp_path / "run", engines.ready(way), ends=True)
        took_s = wait_for(lambda: all(each.poll() is not None for each in launch.processes), PATIENCE_S)
        output = launch.output()
        assert took_s is not None, output
        assert [each.returncode for each in launch.processes] == [0] * len(launch.processes), output
        losses = launch.losses()
        assert losses == {rank: pytest.approx(found, abs=1e-3) for rank, found in enumerate(alone)}, output
        assert wait_for(lambda: not here.jobs(), BOUND_S) is not None
        row("nothing", way, f"{took_s:.1f} s, losses as of one process; nothing left")

    @pytest.mark.parametrize("part", effort.some(PARTS, every=len(PARTS)), ids=lambda part: part.name)
    def test_a_kill_is_named_and_leaves_nothing(
        self,
        here: Cluster,
        engines: Engines,
        row: Callable[[str, str, str], None],
        tmp_path: Path,
        way: str,
        part: Part,
    ) -> None:
        if way in part.but:
            pytest.skip("there is none")
        own = engines.ready(way) | {"INA_OPTIONS": f"--lease {LEASE_S}"}
        launch = Launch.of(here, WAYS[way], tmp_path / "run", own, ends=False)
        if wait_for(lambda: launch.going, PATIENCE_S) is None:
            raise AssertionError(f"it has not begun\n{launch.output()}")
        assert len(here.jobs()) == 1
        gone = part.kill(launch)
        row(part.name, way, outcome(launch, part, gone))


def outcome(launch: Launch, part: Part, gone: set[int]) -> str:
    """Wait for what becomes of a launch, check it, and say it."""
    here, at, began = launch.here, time.time(), time.monotonic()
    others = {*range(RANKS)} - gone
    wait_for(lambda: not others & {*launch.alive()} or launch.stepped(at + GOES_ON_S), BOUND_S)
    took_s = time.monotonic() - began
    goes_on = bool(others & {*launch.alive()}) and launch.stepped(at + GOES_ON_S)
    launch.finish()
    over = wait_for(lambda: not launch.alive(), BOUND_S)
    for host in HOSTS:
        here.cable(host, "up")
    ended = wait_for(lambda: all(each.poll() is not None for each in launch.processes), BOUND_S)
    left_s = wait_for(lambda: not here.jobs(), BOUND_S)
    errors, output = launch.errors(), launch.output()
    said = f"{errors}\n{output}\n{here.jobs()}"
    assert over is not None, f"ranks {launch.alive()} have not ended\n{said}"
    assert ended is not None or part.ends is None or launch.way.name in part.stays, (
        f"the launcher has not ended\n{said}"
    )
    assert left_s is not None, f"the job has stayed on a switch\n{said}"
    assert part.ends is None or part.ends != goes_on, said
    if goes_on:
        assert not errors, said
        return "goes on, and ends well; nothing left"
    if launch.way.name in part.mute and not errors:
        return f"{took_s:.1f} s: {launch.way.name} has gone with it, and its ranks; nothing left"
    pattern = part.named.format(
        ranks=f"({'|'.join(map(str, sorted(gone)))})",
        launcher=re.escape(here.state.topology.ip(machine_of(launch, 0))),
    )
    named = {rank for rank, text in errors.items() if rank in others and re.search(pattern, text)}
    assert named or re.search(pattern, output), f"{pattern} is not named\n{said}"
    wrong = {rank: text for rank, text in errors.items() if rank in others - named}
    assert not wrong, f"{pattern} is not what these ranks say: {wrong}\n{said}"
    ended_by = f", {launch.way.name} ended the others" if named < others else ""
    return f"{took_s:.1f} s: {len(named)} of {len(others)} ranks name it{ended_by}; nothing left"
