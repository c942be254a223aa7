"""Servers, trees, slots and reasons: commands, simulator, core and service decide by the same functions."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import Core, Submitted, Tick, reasons
from controller.core.compose import submission_of
from controller.policies.memory.policy import MemoryDivision, MemoryProblem
from controller.policies.settings import AllocationSettings
from controller.simulator.network.run import NetworkSettings, NetworkTask, simulate_network
from controller.vocabulary import Job, Topology, fabrics
from controller.vocabulary.files import read_jobs, read_topology, topology_document, write_jobs
from ina.cli.commands import app
from ina.run.clock import Clock
from ina.run.ledger import Ledger
from ina.run.policies import Policies
from ina.run.store import Store
from tests import effort

DRAWING = ("ecmp", "ecmp-everywhere", "grid")
"""Routing policies that draw; those of a core draw after its placement policy, so they are left out with
placement ``random``."""

Decision = Mapping[str, tuple[Any, ...]]
"""By job: servers, fallback server, whether it is summed, tree, standing, regions and both reasons."""


def network(draw: random.Random) -> Topology:
    parts = fabrics.Parts(
        gpus=draw.choice((2, 4)), slots=draw.choice((64, 512, 4096)), trunk_bps=draw.choice((25e9, 100e9))
    )
    return fabrics.leaf_spine(draw.randint(1, 3), draw.randint(1, 4), draw.randint(2, 4), parts)


def jobs_for(draw: random.Random, topology: Topology) -> list[Job]:
    """Return jobs that all fit at once, some with deadlines: easy, hard or impossible ones."""
    left, found = topology.gpus, list[Job]()
    while len(found) < 8 and left > 1:
        workers = draw.randint(1, min(8, left))
        left -= workers
        found.append(
            Job(
                name=f"j{len(found)}",
                workers=workers,
                layers_bytes=(draw.randint(1, 400) * 1_000_000,),
                iterations=draw.randint(10, 400),
                compute_s=draw.uniform(0, 0.1),
                deadline_s=draw.uniform(1, 200) if draw.random() < 0.5 else None,
                on_late=draw.choice(("end", "best-effort")),
            )
        )
    return found


def of_division(
    placed: Mapping[str, Job], problem: MemoryProblem, division: MemoryDivision, late: Mapping[str, float]
) -> Decision:
    """Return a decision as a core holds it."""
    found: dict[str, tuple[Any, ...]] = {}
    for name, job in placed.items():
        where = (job.servers, job.fallback, job.aggregate, job.tree)
        slots: tuple[Any, ...] = ("-", {}, "")
        if name in division.standing:
            why = (
                reasons.late_text(job, late[name])
                if name in late
                else reasons.slots_text(problem, division, name)
            )
            regions = {at: (each.offset, each.size) for at, each in division.regions[name].items()}
            slots = (division.standing[name].value, regions, why)
        found[name] = (*where, reasons.place_text(job), *slots)
    return found


def by_core(core: Core) -> Decision:
    assert core.allocation is not None
    allocator = core.allocation.allocator
    problem = allocator.problem or MemoryProblem((), allocator.topology)  # no job uses the network
    return of_division(
        allocator.placed, problem, allocator.division or MemoryDivision({}, {}), allocator.late
    )


def by_commands(folder: Path, placement: str, memory: str, routing: str, seed: int) -> Decision:
    """Ask ``ina place``, ``route`` and ``alloc`` one after the other."""
    cluster = ("--cluster", str(folder / "cluster.json"))
    names = [str(folder / f"{name}.json") for name in ("jobs", "placed", "routed")]
    drawn = ("--seed", str(seed))
    ina("place", "--jobs", names[0], *cluster, "--policy", placement, *drawn, "--write", names[1])
    routed = ina("route", "--jobs", names[1], *cluster, "--policy", routing, *drawn, "--write", names[2])
    slots = ina("alloc", "--jobs", names[2], *cluster, "--policy", memory)["jobs"]
    found: dict[str, tuple[Any, ...]] = {}
    for job in read_jobs(Path(names[2])):
        where = (job.servers, job.fallback, job.aggregate, job.tree)
        reason = routed["jobs"][job.name]["reason"] if job.tree else reasons.place_text(job)
        if job.name not in slots:
            found[job.name] = (*where, reason, "-", {}, "")
            continue
        of = slots[job.name]
        regions = {name: (each["offset"], each["size"]) for name, each in of["regions"].items()}
        found[job.name] = (*where, reason, of["standing"], regions, of["reason"])
    return found


def ina(*words: str) -> Any:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(io.StringIO()):
        app([*words, "--json"], standalone_mode=False)
    return json.loads(shown.getvalue())


def by_service(topology: Topology, policies: Policies, jobs: list[Job], folder: Path) -> Decision:
    """Submit the jobs to a service's ledger, and have it decide once."""
    with Store(folder) as store:
        clock = Clock(0.0, 0.0, wall=lambda: 0.0, monotonic=lambda: 0.0)
        ledger = Ledger(store, topology, policies, clock)
        ledger.record([Submitted(0.0, submission_of(job, ledger.topology), job) for job in jobs])
        ledger.record([Tick(0.0)])  # `decide` goes on until nothing is due: without the jobs that it ended
        return by_core(ledger.core)


def by_simulator(
    topology: Topology, chosen: NetworkSettings, jobs: list[Job], late: Mapping[str, float]
) -> Decision:
    """Return what the first decision of ``ina cluster simulate`` is; it keeps no estimates of `late` jobs."""
    log = simulate_network(NetworkTask(jobs, topology, "fifo-backfill", chosen, keep_log=True)).log
    assert log is not None
    _, problem, division = (
        log.memory[0] if log.memory else (0.0, MemoryProblem((), topology), MemoryDivision({}, {}))
    )
    placed = {name: job for when, name, job in log.places if when == 0}
    return of_division(placed, problem, division, late)


@settings(deadline=None, max_examples=effort.cases(25))
@given(
    st.sampled_from(["netpack", "gpu-balance", "locality", "least-fragmentation", "random"]),
    st.sampled_from(["deadline", "deadline-lazy", "shared", "static", "preemptive"]),
    st.sampled_from(["shortest-path", "tor-only", *DRAWING]),
    st.integers(0, 100_000),
)
def test_the_same_files_and_policies_give_the_same_places_slots_and_reasons(
    placement: str, memory: str, routing: str, seed: int
) -> None:
    if placement == "random" and routing in DRAWING:
        routing = "shortest-path"
    draw = random.Random(seed)
    topology = network(draw)
    jobs = jobs_for(draw, topology)
    names = {"placement": placement, "memory": memory, "routing": routing, "seed": seed}
    policies = Policies("fifo-backfill", AllocationSettings(**names))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster.json").write_text(json.dumps(topology_document(topology)))
        write_jobs(folder / "jobs.json", jobs)
        topology = read_topology(str(folder / "cluster.json"))
        jobs = list(read_jobs(folder / "jobs.json"))
        core = policies.core(topology)
        for job in jobs:
            core.handle(Submitted(0.0, submission_of(job, topology), job))
        core.handle(Tick(0.0))
        wanted = by_core(core)
        assert core.allocation is not None
        late = core.allocation.allocator.late
        assert len(wanted) == len(jobs)
        assert by_commands(folder, placement, memory, routing, seed) == wanted
        assert by_simulator(topology, NetworkSettings(**names), jobs, late) == wanted
        assert by_service(topology, policies, jobs, folder / "state") == wanted
