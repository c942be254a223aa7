"""The shared mode, exhaustively: two workers, two PSNs, one slot, every order of delivery, every mishap.

Real are the compiled program, the workers' windows and the fallback server's core. See `model_check_explorer`
for what is explored, and `model_check_parts` for what is taken for the same state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from bmv2_topos.soak.bed import BuiltBed, Rack
from bmv2_topos.soak.draw import LANES
from bmv2_topos.soak.schedule import Bed, JobPlan
from bmv2_topos.spec import Host, Link, Switch, Topology
from bmv2_topos.testbeds.virtual.placement import Placement
from bmv2_topos.testbeds.virtual.server import endpoints
from controller.model import Region
from hostlib.core.numpy_kernel import NumpyKernel
from hostlib.core.state import NEVER, CoreSettings, window_for
from hostlib.core.window import Window
from hostlib.fallback.config import FallbackJob, FallbackSettings
from hostlib.fallback.numpy_core import NumpyCore
from tests.system.faults_mutants import PROGRAMS
from tests.system.model_check_explorer import Budget, Explored, Explorer
from tests.system.model_check_parts import Automaton, Packets, Part, ServerPart, SwitchPart, WorkerPart

WINDOW = window_for(2)
"""Both PSNs may be in flight."""
MOST = 400_000
"""States. More would take too long, and mean that clocks have got into the states."""


def bed_of(switches: tuple[str, ...], jobs: int = 1) -> Bed:
    """Return a chain of switches, root first, with all workers at the last and the server at the first.

    Every job has two workers.
    """
    links = [Link(above, below) for above, below in itertools.pairwise(switches)]
    placements = [Placement((f"h{job}.0", f"h{job}.1"), "p") for job in range(1, jobs + 1)]
    workers = [host for placement in placements for host in placement.workers]
    links += [*(Link(host, switches[-1]) for host in workers), Link("p", switches[0])]
    hosts = tuple(map(Host, [*workers, "p"]))
    topology = Topology(tuple(map(Switch, switches)), hosts, tuple(links))
    return Bed(0, "shared", topology, tuple(placements), {}, (0,) * jobs)


def explore(bed: Bed, rack: Rack, psns: int, budget: Budget) -> Explored:
    """Explore jobs of two workers that sum arrays of so many packets, all hashed into one slot.

    A job with a higher number may take the slot from one with a lower.
    """
    jobs = range(1, len(bed.placements) + 1)
    plans = {
        job: JobPlan(job, job << 16 | job, WINDOW, Region(0, 1), True, 100_000, "fixed", "exponent", 0, ())
        for job in jobs
    }
    topology = bed.topology
    with BuiltBed(bed, rack) as built:
        built.prepare(plans)
        parts: dict[str, Part] = {
            switch.name: SwitchPart(built, switch.name, range(1)) for switch in topology.switches
        }
        core = NumpyCore(FallbackSettings(lanes=LANES, endpoints=endpoints(topology, "p")))
        sent: Packets = ()
        for job, placement in zip(jobs, bed.placements, strict=True):
            admitted = built.admitted[job]
            core.add_job(FallbackJob(job, admitted.root.epoch, admitted.tree, window=WINDOW))
            length = (psns - 1) * LANES + 1
            inputs = [np.arange(1, length + 1, dtype=np.int32) << 8 * rank + job for rank in range(2)]
            for rank, host in enumerate(placement.workers):
                settings = CoreSettings(
                    *(job, rank, 2, 2 * WINDOW, LANES, endpoints(topology, host)),
                    tree=admitted.tree,
                    epoch=admitted.root.epoch,
                    window=WINDOW,
                    fallback=True,
                )
                switch, port, _ = built.host_ports[host]
                window = Window(settings, NumpyKernel())
                worker = WorkerPart(
                    window, inputs[rank], inputs[0] + inputs[1], switch, port, priority=job - 1
                )
                parts[host] = worker
                sent += worker.sent_first
        switch, port, _ = built.host_ports["p"]
        parts["p"] = ServerPart(core, switch, port)
        automata = {name: Automaton(part) for name, part in parts.items()}
        workers = [host for placement in bed.placements for host in placement.workers]
        return Explorer(automata, workers, "p", sent).explore(budget, most=MOST)


ONE_SWITCH = bed_of(("s1",))
TWO_LEVELS = bed_of(("s1", "s2"))
TWO_JOBS = bed_of(("s1",), jobs=2)


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    rack = Rack.of("shared")
    yield rack
    rack.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bed", "psns", "budget", "states"),
    [
        pytest.param(ONE_SWITCH, 2, Budget(losses=1), 40_000, id="any packet is lost"),
        pytest.param(ONE_SWITCH, 2, Budget(doubles=1), 2_000, id="any packet arrives twice"),
        pytest.param(ONE_SWITCH, 2, Budget(early=1), 40_000, id="any time-out is too early"),
        pytest.param(ONE_SWITCH, 1, Budget(losses=1, early=1), 6_000, id="a loss and an early time-out"),
        pytest.param(ONE_SWITCH, 1, Budget(losses=1, restarts=1), 7_000, id="a loss, and the server forgets"),
        pytest.param(TWO_LEVELS, 1, Budget(losses=1), 2_000, id="any packet is lost below or above"),
        pytest.param(TWO_JOBS, 1, Budget(), 200, id="two jobs want the slot"),
        pytest.param(TWO_JOBS, 1, Budget(losses=1), 40_000, id="two jobs want the slot, any packet is lost"),
    ],
)
def test_every_order_of_everything_ends_with_the_sums(
    rack: Rack, bed: Bed, psns: int, budget: Budget, states: int
) -> None:
    found = explore(bed, rack, psns, budget)
    assert not found.wrong, "\n".join(found.wrong[0])
    assert not found.hopeless, "\n".join(found.hopeless[0])
    # fewer would mean that something is not explored any more
    assert found.states > states
    assert found.done > 10


def test_a_wrong_sum_is_found() -> None:
    rack = Rack(PROGRAMS["a contributor's bit is not looked at"].compile())
    try:
        assert explore(ONE_SWITCH, rack, 1, Budget(doubles=1)).wrong
    finally:
        rack.close()


def test_a_dead_end_is_found(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    # workers send nothing again, so nobody ever learns of what was lost on its way to the switch
    monkeypatch.setattr(NumpyKernel, "next_timeout", lambda self, state: NEVER)
    found = explore(ONE_SWITCH, rack, 1, Budget(losses=1))
    assert found.hopeless
    assert "lose to s1" in "\n".join(found.hopeless[0])
